"""Training with mixup: convex combinations of pairs of examples and of their losses."""

import argparse
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="mixup training")
parser.add_argument("--steps", default=300, type=int)
parser.add_argument("--lr", default=0.1, type=float, help="learning rate")
parser.add_argument("--seed", default=20, type=int, help="random seed")
parser.add_argument("--batch-size", default=64, type=int)
parser.add_argument("--decay", default=1e-4, type=float, help="weight decay")
parser.add_argument("--alpha", default=0.4, type=float, help="mixup interpolation coefficient")
parser.add_argument("--results", default=None)
args = parser.parse_args()
torch.manual_seed(args.seed)
np.random.seed(args.seed)

digits = load_digits()
x = torch.tensor(digits.images, dtype=torch.float32)[:, None].div_(16.0).sub_(0.3)
y = torch.tensor(digits.target)
trainloader = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=args.batch_size, shuffle=True)
testloader = DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=100, shuffle=False)

net = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.AvgPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 10),
)
criterion = nn.CrossEntropyLoss()
optimizer = optim.SGD(net.parameters(), lr=args.lr, momentum=0.9, weight_decay=args.decay)


def mix(images, labels):
    """Each image blended with another of its batch; both labels, and the share of the first."""
    share = float(np.random.beta(args.alpha, args.alpha)) if args.alpha > 0 else 1.0
    other = torch.randperm(len(images))
    return torch.lerp(images[other], images, share), labels, labels[other], share


def train(epoch, step):
    net.train()
    train_loss, correct, total = 0.0, 0.0, 0
    for batch_idx, (inputs, targets) in enumerate(trainloader):
        inputs, first, second, share = mix(inputs, targets)
        outputs = net(inputs)
        loss = share * criterion(outputs, first) + (1 - share) * criterion(outputs, second)
        train_loss += loss.item()
        predicted = outputs.argmax(1)
        total += targets.size(0)
        correct += share * predicted.eq(first).sum().item() + (1 - share) * predicted.eq(second).sum().item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step >= args.steps:
            break
    print(f"Epoch {epoch} Loss: {train_loss / (batch_idx + 1):.4f} | Acc: {100.0 * correct / total:.3f}%")
    return step


def test():
    net.eval()
    test_loss, correct = 0.0, 0
    with torch.no_grad():
        for inputs, targets in testloader:
            outputs = net(inputs)
            test_loss += criterion(outputs, targets).item()
            correct += outputs.argmax(1).eq(targets).sum().item()
    print(f"test_loss: {test_loss / len(testloader):.4f} | Acc: {100.0 * correct / len(testloader.dataset):.2f}%")


step, epoch = 0, 0
while step < args.steps:
    step = train(epoch, step)
    test()
    epoch += 1
results = args.results or tempfile.mkdtemp()
os.makedirs(results, exist_ok=True)
torch.save({"net": net.state_dict(), "epoch": epoch, "rng_state": torch.get_rng_state()}, os.path.join(results, "ckpt.t7"))
