"""Image classification, SGD with momentum, the learning rate divided by ten now and then (stepped per epoch)."""

import argparse
import os
import shutil
import tempfile

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Subset, TensorDataset

parser = argparse.ArgumentParser(description="Digits Training")
parser.add_argument("--steps", default=300, type=int, metavar="N", help="stop after this many iterations")
parser.add_argument("--epochs", default=30, type=int, metavar="N")
parser.add_argument("-b", "--batch-size", default=50, type=int)
parser.add_argument("--lr", "--learning-rate", default=0.05, type=float, dest="lr")
parser.add_argument("--momentum", default=0.9, type=float)
parser.add_argument("--wd", "--weight-decay", default=1e-4, type=float, dest="weight_decay")
parser.add_argument("-p", "--print-freq", default=10, type=int)
parser.add_argument("--save-dir", default=None, type=str)


class AverageMeter:
    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(12, 24, 3, stride=2, padding=1),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(24 * 16, 10),
    )


def train(loader, model, criterion, optimizer, epoch, args, iteration):
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")
    model.train()
    for i, (images, target) in enumerate(loader):
        output = model(images)
        loss = criterion(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update((output.argmax(1) == target).float().mean().item() * 100, images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        iteration += 1
        if i % args.print_freq == 0:
            print(
                f"Epoch: [{epoch}][{i}/{len(loader)}] Loss {losses.val:.4f} Acc@1 {top1.avg:.2f} (mean loss of epoch: {losses.avg:.4f})"
            )
        if iteration >= args.steps:
            break
    return iteration


def validate(loader, model, criterion):
    losses, top1 = AverageMeter("Loss"), AverageMeter("Acc@1")
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            output = model(images)
            losses.update(criterion(output, target).item(), images.size(0))
            top1.update((output.argmax(1) == target).float().mean().item() * 100, images.size(0))
    print(f" * Acc@1 {top1.avg:.3f} val_loss {losses.avg:.4f}")
    return top1.avg


def main():
    args = parser.parse_args()
    torch.manual_seed(0)
    save_dir = args.save_dir or tempfile.mkdtemp()
    os.makedirs(save_dir, exist_ok=True)

    digits = load_digits()
    dataset = TensorDataset(torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target))
    train_loader = DataLoader(Subset(dataset, range(1500)), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(Subset(dataset, range(1500, len(dataset))), batch_size=100)

    model = build_model()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=args.momentum, weight_decay=args.weight_decay)
    scheduler = StepLR(optimizer, step_size=6, gamma=0.1)

    best_acc1, iteration = 0, 0
    for epoch in range(args.epochs):
        iteration = train(train_loader, model, criterion, optimizer, epoch, args, iteration)
        acc1 = validate(val_loader, model, criterion)
        scheduler.step()
        is_best = acc1 > best_acc1
        best_acc1 = max(acc1, best_acc1)
        filename = os.path.join(save_dir, "checkpoint.pth.tar")
        torch.save({"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}, filename)
        if is_best:
            shutil.copyfile(filename, os.path.join(save_dir, "model_best.pth.tar"))
        if iteration >= args.steps:
            break


if __name__ == "__main__":
    main()
