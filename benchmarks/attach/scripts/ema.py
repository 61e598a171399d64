"""A convolutional classifier, and a copy of it whose weights are an exponential moving average."""

import argparse
import copy
import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn


class ModelEMA:
    def __init__(self, model, decay):
        self.ema = copy.deepcopy(model)
        self.ema.eval()
        self.decay = decay
        self.updates = 0
        for p in self.ema.parameters():
            p.requires_grad_(False)

    def update(self, model):
        self.updates += 1
        d = min(self.decay, (1 + self.updates) / (10 + self.updates))
        with torch.no_grad():
            needs_module = model.state_dict()
            for k, v in self.ema.state_dict().items():
                if v.dtype.is_floating_point:
                    v *= d
                    v += (1.0 - d) * needs_module[k].detach()


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    return (model(x).argmax(dim=1) == y).float().mean().item()


def run(opt):
    torch.manual_seed(opt.seed)
    digits = load_digits()
    x = torch.as_tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.as_tensor(digits.target)
    x_train, y_train, x_val, y_val = x[:1500], y[:1500], x[1500:], y[1500:]

    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.GroupNorm(4, 16),
        nn.SiLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.GroupNorm(4, 32),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(32, 10),
    )
    optimizer = torch.optim.NAdam(model.parameters(), lr=opt.lr)
    ema = ModelEMA(model, opt.decay)
    criterion = nn.CrossEntropyLoss()

    save_dir = opt.save_dir or tempfile.mkdtemp()
    os.makedirs(save_dir, exist_ok=True)
    best = 0.0
    for ni in range(opt.steps):
        model.train()
        idx = torch.randint(len(x_train), (opt.batch_size,))
        loss = criterion(model(x_train[idx]), y_train[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        if (ni + 1) % 25 == 0:
            acc, ema_acc = accuracy(model, x_val, y_val), accuracy(ema.ema, x_val, y_val)
            print(f"{ni + 1:5d}/{opt.steps} loss {loss.item():.4f} acc {acc:.3f} ema acc {ema_acc:.3f}")
            if ema_acc > best:
                best = ema_acc
                ckpt = {"model": copy.deepcopy(model).half(), "ema": copy.deepcopy(ema.ema).half(), "updates": ema.updates}
                torch.save({k: v.state_dict() if hasattr(v, "state_dict") else v for k, v in ckpt.items()}, f"{save_dir}/best.pt")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.99)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save-dir", default="")
    run(parser.parse_args())
