"""A physics-informed fit by L-BFGS: a small tanh network for u'' + u = 0, u(0) = 0, u'(0) = 1."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--max-iter", type=int, default=4)
args = parser.parse_args()

torch.manual_seed(1234)

net = nn.Sequential(nn.Linear(1, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
t = torch.linspace(0, 6.0, 64).reshape(-1, 1).requires_grad_(True)
t0 = torch.zeros(1, 1, requires_grad=True)

optimizer = torch.optim.LBFGS(net.parameters(), lr=args.lr, max_iter=args.max_iter, history_size=20)


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def closure():
    optimizer.zero_grad()
    u = net(t)
    u_tt = derivative(derivative(u, t), t)
    residual = ((u_tt + u) ** 2).mean()
    u0 = net(t0)
    boundary = u0.pow(2).sum() + (derivative(u0, t0) - 1.0).pow(2).sum()
    loss = residual + 10.0 * boundary
    loss.backward()
    return loss


for step in range(args.steps):
    loss = optimizer.step(closure)
    if step % 10 == 0:
        with torch.no_grad():
            error = (net(t) - torch.sin(t)).abs().max()
        print(f"step {step:4d}  loss {loss.item():.6f}  max error {error.item():.4f}")

print(f"final loss {closure().item():.6f}")
