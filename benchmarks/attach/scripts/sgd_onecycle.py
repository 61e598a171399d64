"""SGD with Nesterov momentum and a one-cycle schedule, stepped after every batch."""

import argparse

import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from sklearn.preprocessing import StandardScaler


def conv_bn(c_in, c_out):
    return nn.Sequential(nn.Conv2d(c_in, c_out, 3, padding=1, bias=False), nn.BatchNorm2d(c_out), nn.ReLU(inplace=True))


class Residual(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return x + self.module(x)


class Mul(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def forward(self, x):
        return x * self.weight


def construct_model():
    return nn.Sequential(
        conv_bn(1, 16),
        Residual(nn.Sequential(conv_bn(16, 16), conv_bn(16, 16))),
        conv_bn(16, 32),
        nn.MaxPool2d(2),
        nn.AdaptiveMaxPool2d((1, 1)),
        nn.Flatten(),
        nn.Linear(32, 10, bias=False),
        Mul(0.5),
    )


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--batch_size", type=int, default=64)
parser.add_argument("--max_lr", type=float, default=0.2)
args = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
data = StandardScaler().fit_transform(digits.data).reshape(-1, 1, 8, 8)
train_x, train_y = torch.tensor(data[:1400], dtype=torch.float32), torch.tensor(digits.target[:1400])
test_x, test_y = torch.tensor(data[1400:], dtype=torch.float32), torch.tensor(digits.target[1400:])

model = construct_model()
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
opt = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
scheduler = optim.lr_scheduler.OneCycleLR(opt, max_lr=args.max_lr, total_steps=args.steps)

ep, it = 0, 0
while it < args.steps:
    perm = torch.randperm(len(train_x))
    for start in range(0, len(perm) - args.batch_size + 1, args.batch_size):
        idx = perm[start : start + args.batch_size]
        opt.zero_grad(set_to_none=True)
        loss = loss_fn(model(train_x[idx]), train_y[idx])
        loss.backward()
        opt.step()
        scheduler.step()
        if it % 20 == 0:
            print(f"ep {ep} it {it} lr {scheduler.get_last_lr()[0]:.4f} loss {loss.item():.4f}")
        it += 1
        if it >= args.steps:
            break
    ep += 1

model.eval()
with torch.no_grad():
    out = model(test_x)
print(f"final loss {loss.item():.4f}")
print(f"Accuracy: {(out.argmax(1) == test_y).float().mean().item() * 100:.1f}%")
