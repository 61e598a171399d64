"""A ResNet with BatchNorm, a validation pass after each epoch, early stopping on the validation loss."""

import argparse
import tempfile
import time
from pathlib import Path

import torch
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class BasicBlock(nn.Module):
    def __init__(self, in_planes, planes, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(in_planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.shortcut = nn.Sequential()
        if stride != 1 or in_planes != planes:
            self.shortcut = nn.Sequential(nn.Conv2d(in_planes, planes, 1, stride=stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        return torch.relu(out + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.layer1 = BasicBlock(width, width)
        self.layer2 = BasicBlock(width, 2 * width, stride=2)
        self.linear = nn.Linear(2 * width, 10)

    def forward(self, x):
        out = self.layer2(self.layer1(self.stem(x)))
        return self.linear(out.mean(dim=(2, 3)))


def train_one_epoch(model, criterion, optimizer, loader, budget):
    model.train()
    seen, total = 0, 0.0
    for n, (image, target) in enumerate(loader):
        if n >= budget:
            break
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(image)
        seen += len(image)
    return total / seen, min(budget, len(loader))


@torch.no_grad()
def evaluate(model, criterion, loader):
    model.eval()
    total, correct, n = 0.0, 0, 0
    for image, target in loader:
        output = model(image)
        total += criterion(output, target).item() * len(image)
        correct += (output.argmax(1) == target).sum().item()
        n += len(image)
    return total / n, correct / n


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--patience", type=int, default=5)
    parser.add_argument("--output-dir", default=None)
    args = parser.parse_args()
    torch.manual_seed(3)

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None]
    x = (x - x[:1300].mean()) / x[:1300].std()
    y = torch.tensor(digits.target)
    train_loader = DataLoader(TensorDataset(x[:1300], y[:1300]), batch_size=50, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[1300:], y[1300:]), batch_size=128)

    model = ResNet()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)
    output_dir = Path(args.output_dir or tempfile.mkdtemp())
    output_dir.mkdir(parents=True, exist_ok=True)

    best, bad_epochs, left, epoch = float("inf"), 0, args.steps, 0
    while left > 0 and bad_epochs < args.patience:
        start = time.time()
        train_loss, used = train_one_epoch(model, criterion, optimizer, train_loader, left)
        val_loss, val_acc = evaluate(model, criterion, val_loader)
        left -= used
        print(
            f"epoch {epoch}: train loss {train_loss:.4f} val_loss {val_loss:.4f} acc {val_acc:.4f} ({time.time() - start:.1f}s)"
        )
        if val_loss < best:
            best, bad_epochs = val_loss, 0
            torch.save(model.state_dict(), output_dir / "best.pth")
        else:
            bad_epochs += 1
        epoch += 1


if __name__ == "__main__":
    main()
