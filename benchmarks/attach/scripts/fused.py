"""Regression on a made-up surface with fused AdamW."""

import argparse

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from tqdm import tqdm


def friedman(n, generator):
    x = torch.rand(n, 10, generator=generator)
    y = 10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, y + 0.5 * torch.randn(n, generator=generator)


class Regressor(nn.Module):
    def __init__(self, d_in=10, d_hidden=64):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_in, d_hidden), nn.SiLU(), nn.Linear(d_hidden, d_hidden), nn.SiLU(), nn.Linear(d_hidden, 1)
        )

    def forward(self, x):
        return self.net(x).squeeze(-1)


def main(args):
    generator = torch.Generator().manual_seed(args.seed)
    torch.manual_seed(args.seed)
    x, y = friedman(3000, generator)
    x = (x - x.mean(dim=0)) / x.std(dim=0)
    y = (y - y.mean()) / y.std()
    train_set, val_set = random_split(TensorDataset(x, y), [2400, 600], generator=generator)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=200)

    model = Regressor()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.99), weight_decay=1e-2, fused=True)
    criterion = nn.MSELoss()

    epochs = -(-args.steps // len(train_loader))
    done = 0
    for epoch in range(epochs):
        model.train()
        total, count = 0.0, 0
        for xb, yb in tqdm(train_loader, disable=not args.progress):
            if done >= args.steps:
                break
            pred = model(xb)
            loss = criterion(pred, yb)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(xb)
            count += len(xb)
            done += 1
        model.eval()
        with torch.inference_mode():
            val_mse = sum(criterion(model(xb), yb).item() * len(xb) for xb, yb in val_loader) / len(val_set)
        print(f"epoch {epoch + 1}/{epochs} train loss {total / count:.4f} val mse {val_mse:.4f}")


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=4e-3)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--progress", action="store_true")
    main(p.parse_args())
