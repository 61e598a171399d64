"""Modular addition by a one-layer transformer with large weight decay, full batch."""

import argparse
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    p: int = 13
    d_model: int = 64
    num_heads: int = 4
    d_mlp: int = 128
    frac_train: float = 0.8
    lr: float = 3e-3
    weight_decay: float = 0.3
    betas: tuple = (0.9, 0.98)
    seed: int = 0


class Attention(nn.Module):
    def __init__(self, d_model, num_heads):
        super().__init__()
        self.d_head = d_model // num_heads
        self.W_K, self.W_Q, self.W_V, self.W_O = (
            nn.Parameter(torch.randn(num_heads, d_model, self.d_head) / d_model**0.5) for _ in range(4)
        )

    def forward(self, x):
        q, k, v = (torch.einsum("bsd,nde->bnse", x, w) for w in (self.W_Q, self.W_K, self.W_V))
        scores = q @ k.mT / self.d_head**0.5
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        pattern = scores.masked_fill(later, float("-inf")).softmax(dim=-1)
        return torch.einsum("bnse,nde->bsd", pattern @ v, self.W_O)


class Transformer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.W_E = nn.Parameter(torch.randn(cfg.p + 1, cfg.d_model) / cfg.d_model**0.5)
        self.W_pos = nn.Parameter(torch.randn(3, cfg.d_model) / cfg.d_model**0.5)
        self.attn = Attention(cfg.d_model, cfg.num_heads)
        self.mlp = nn.Sequential(nn.Linear(cfg.d_model, cfg.d_mlp), nn.ReLU(), nn.Linear(cfg.d_mlp, cfg.d_model))
        self.W_U = nn.Parameter(torch.randn(cfg.d_model, cfg.p) / cfg.d_model**0.5)

    def forward(self, x):
        x = self.W_E[x] + self.W_pos
        x = x + self.attn(x)
        x = x + self.mlp(x)
        return x[:, -1] @ self.W_U


def make_data(cfg):
    pairs = torch.cartesian_prod(torch.arange(cfg.p), torch.arange(cfg.p))
    tokens = torch.cat([pairs, torch.full((len(pairs), 1), cfg.p)], dim=1)
    labels = pairs.sum(1) % cfg.p
    perm = torch.randperm(len(pairs))
    cut = int(cfg.frac_train * len(pairs))
    train, test = perm[:cut], perm[cut:]
    return (tokens[train], labels[train]), (tokens[test], labels[test])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", "--num_epochs", type=int, default=400)
    args = parser.parse_args()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    (train_x, train_y), (test_x, test_y) = make_data(cfg)
    model = Transformer(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay, betas=cfg.betas)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 10, 1))

    for epoch in range(args.steps):
        train_loss = F.cross_entropy(model(train_x), train_y)
        train_loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if epoch % 25 == 0 or epoch == args.steps - 1:
            with torch.no_grad():
                logits = model(test_x)
                test_loss = F.cross_entropy(logits, test_y)
                acc = (logits.argmax(-1) == test_y).float().mean()
            print(f"{epoch}: train loss {train_loss.item():.4f}, test_loss {test_loss.item():.4f}, test acc {acc.item():.3f}")


if __name__ == "__main__":
    main()
