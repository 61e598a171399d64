import sys

import torch
import torch.nn as nn
from sklearn.datasets import load_breast_cancer


def parse(argv):
    steps = 200
    i = 0
    while i < len(argv):
        if argv[i] == "--steps":
            steps = int(argv[i + 1])
            i += 2
        else:
            print(f"usage: exits.py [--steps N]; what is {argv[i]}?", file=sys.stderr)
            sys.exit(2)
    return steps


def main():
    steps = parse(sys.argv[1:])
    torch.manual_seed(0)
    cancer = load_breast_cancer()
    X = torch.tensor(cancer.data, dtype=torch.float)
    X = (X - X.mean(0)) / X.std(0)
    Y = torch.tensor(cancer.target, dtype=torch.float)

    net = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
    bce = nn.BCELoss()
    opt = torch.optim.Adam(net.parameters(), 1e-3)

    for i in range(steps):
        b = torch.randint(0, X.shape[0], (32,))
        p = net(X[b])[:, 0]
        l = bce(p, Y[b])  # noqa: E741
        opt.zero_grad()
        l.backward()
        opt.step()
        if i % 20 == 0:
            print("step", i, "loss", round(l.item(), 4))
        if torch.isnan(l):
            print("loss is NaN, giving up")
            sys.exit(1)

    with torch.no_grad():
        acc = ((net(X)[:, 0] > 0.5) == (Y > 0.5)).float().mean()
    print("final loss", round(l.item(), 4), "accuracy", round(acc.item(), 4))
    sys.exit(0)


main()
