"""Two tasks from one trunk (which digit, and how much ink), weighted by learned uncertainties, plus a center loss."""

import argparse
import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class CenterLoss(nn.Module):
    def __init__(self, num_classes, feat_dim):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(num_classes, feat_dim) * 0.1)

    def forward(self, features, labels):
        return (features - self.centers[labels]).pow(2).sum(dim=1).mean()


class MultiTaskLoss(nn.Module):
    def __init__(self, num_tasks):
        super().__init__()
        self.log_vars = nn.Parameter(torch.zeros(num_tasks))

    def forward(self, losses):
        return sum(torch.exp(-s) * loss + s for s, loss in zip(self.log_vars, losses, strict=True))


class MultiTaskNet(nn.Module):
    def __init__(self, hidden=64, feat_dim=16):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, hidden), nn.ELU(), nn.Linear(hidden, feat_dim), nn.ELU())
        self.classify = nn.Linear(feat_dim, 10)
        self.regress = nn.Linear(feat_dim, 1)

    def forward(self, x):
        features = self.trunk(x)
        return features, self.classify(features), self.regress(features).squeeze(-1)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=300)
    ap.add_argument("--center-weight", type=float, default=0.01)
    args = ap.parse_args()
    torch.manual_seed(21)

    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
    ink = x.sum(dim=1)
    ink = (ink - ink.mean()) / ink.std()
    dataset = TensorDataset(x, torch.tensor(digits.target), ink)
    loader = DataLoader(dataset, batch_size=48, shuffle=True)

    net, center, combine = MultiTaskNet(), CenterLoss(10, 16), MultiTaskLoss(2)
    optimizer = torch.optim.Adam(
        [
            {"params": net.parameters(), "lr": 2e-3},
            {"params": combine.parameters(), "lr": 1e-2},
            {"params": center.parameters(), "lr": 5e-2},
        ]
    )
    stream = itertools.chain.from_iterable(itertools.repeat(loader))
    for step, (inputs, labels, amounts) in enumerate(itertools.islice(stream, args.steps)):
        features, logits, amount = net(inputs)
        ce = F.cross_entropy(logits, labels)
        mse = F.mse_loss(amount, amounts)
        loss = combine([ce, mse]) + args.center_weight * center(features, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0 or step == args.steps - 1:
            sigmas = torch.exp(0.5 * combine.log_vars.detach()).tolist()
            print(
                f"{step:4d} total {loss.item():.4f} ce {ce.item():.4f} mse {mse.item():.4f} sigma {sigmas[0]:.2f} {sigmas[1]:.2f}"
            )


if __name__ == "__main__":
    main()
