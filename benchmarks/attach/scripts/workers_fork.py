"""Digits read by two persistent worker processes, with augmentation made in the workers."""

import argparse

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

digits = load_digits()


class AugmentedDigits(Dataset):
    def __init__(self, images, targets, train=True):
        self.images, self.targets, self.train = images, targets, train

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index].astype(np.float32) / 16.0
        if self.train:
            image = np.roll(image, np.random.randint(-1, 2), axis=1)
            image = image + np.random.normal(0, 0.05, image.shape).astype(np.float32)
        return torch.from_numpy(image)[None], int(self.targets[index])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, 1, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, 1)
        self.dropout = nn.Dropout(0.1)
        self.fc1 = nn.Linear(32 * 9, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = self.dropout(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    torch.manual_seed(0)

    train_set = AugmentedDigits(digits.images[:1500], digits.target[:1500])
    test_set = AugmentedDigits(digits.images[1500:], digits.target[1500:], train=False)
    train_loader = DataLoader(
        train_set,
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=args.workers,
        persistent_workers=args.workers > 0,
        multiprocessing_context="fork" if args.workers > 0 else None,
        drop_last=True,
    )
    test_loader = DataLoader(test_set, batch_size=100)
    model = Net()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.7)

    step, epoch = 0, 1
    while step < args.steps:
        model.train()
        for data, target in train_loader:
            optimizer.zero_grad()
            output = model(data)
            loss = F.nll_loss(output, target)
            loss.backward()
            optimizer.step()
            if step % 20 == 0:
                print(f"Train Epoch: {epoch} [step {step}]\tLoss: {loss.item():.6f}")
            step += 1
            if step >= args.steps:
                break
        model.eval()
        test_loss, correct = 0.0, 0
        with torch.no_grad():
            for data, target in test_loader:
                output = model(data)
                test_loss += F.nll_loss(output, target, reduction="sum").item()
                correct += output.argmax(dim=1).eq(target).sum().item()
        print(f"Test set: Average loss: {test_loss / len(test_set):.4f}, Accuracy: {correct}/{len(test_set)}")
        epoch += 1


if __name__ == "__main__":
    main()
