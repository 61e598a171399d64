"""An MLP-Mixer-like network on digit patches, with the multi-tensor AdamW and separate groups for weight decay."""

import argparse
import logging

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(message)s")
logger = logging.getLogger(__name__)


class MixerBlock(nn.Module):
    def __init__(self, tokens, dim):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.token_mix = nn.Sequential(nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens))
        self.channel_mix = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.token_mix(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channel_mix(self.norm2(x))


class Mixer(nn.Module):
    def __init__(self, dim=32, depth=2):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, kernel_size=2, stride=2)
        self.blocks = nn.Sequential(*[MixerBlock(16, dim) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 10)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(x)).mean(dim=1))


def param_groups(model, weight_decay):
    decay, no_decay = [], []
    for p in model.parameters():
        (no_decay if p.ndim < 2 else decay).append(p)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]


def batches(x, y, batch_size):
    while True:
        for idx in torch.randperm(len(x)).split(batch_size):
            yield x[idx], y[idx]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch_size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--wd", type=float, default=0.05)
    args = parser.parse_args()
    torch.manual_seed(0)

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(digits.target)
    model = Mixer()
    opt = torch.optim.AdamW(param_groups(model, args.wd), lr=args.lr, foreach=True)

    stream = batches(x[:1500], y[:1500], args.batch_size)
    for step in range(1, args.steps + 1):
        xb, yb = next(stream)
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == 1 or step % 20 == 0:
            logger.info("step %d loss %.4f", step, loss.item())

    with torch.no_grad():
        acc = (model(x[1500:]).argmax(1) == y[1500:]).float().mean()
    logger.info("test accuracy %.4f", acc)


if __name__ == "__main__":
    main()
