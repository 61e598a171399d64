"""Two iterators over loaders of different lengths (labelled and unlabelled digits), restarted when they end."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--steps", default=300, type=int, help="number of total steps to run")
parser.add_argument("--batch-size", default=20, type=int)
parser.add_argument("--mu", default=2, type=int, help="coefficient of unlabeled batch size")
parser.add_argument("--threshold", default=0.9, type=float, help="pseudo label threshold")
parser.add_argument("--lambda-u", default=0.5, type=float)
args = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
x = torch.tensor(digits.data, dtype=torch.float32) / 16.0
y = torch.tensor(digits.target)
labeled = TensorDataset(x[:300], y[:300])
unlabeled = TensorDataset(x[300:1400])
test_x, test_y = x[1400:], y[1400:]

labeled_loader = DataLoader(labeled, batch_size=args.batch_size, shuffle=True, drop_last=True)
unlabeled_loader = DataLoader(unlabeled, batch_size=args.batch_size * args.mu, shuffle=True, drop_last=True)


def strong(x):
    return x * (torch.rand_like(x) > 0.2) + 0.1 * torch.randn_like(x)


def weak(x):
    return x + 0.02 * torch.randn_like(x)


model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

labeled_iter = iter(labeled_loader)
unlabeled_iter = iter(unlabeled_loader)
model.train()
for step in range(args.steps):
    try:
        inputs_x, targets_x = next(labeled_iter)
    except StopIteration:
        labeled_iter = iter(labeled_loader)
        inputs_x, targets_x = next(labeled_iter)
    try:
        (inputs_u,) = next(unlabeled_iter)
    except StopIteration:
        unlabeled_iter = iter(unlabeled_loader)
        (inputs_u,) = next(unlabeled_iter)

    inputs = torch.cat((weak(inputs_x), weak(inputs_u), strong(inputs_u)))
    logits = model(inputs)
    logits_x = logits[: len(inputs_x)]
    logits_u_w, logits_u_s = logits[len(inputs_x) :].chunk(2)

    Lx = F.cross_entropy(logits_x, targets_x)
    pseudo_label = torch.softmax(logits_u_w.detach(), dim=-1)
    max_probs, targets_u = torch.max(pseudo_label, dim=-1)
    mask = max_probs.ge(args.threshold).float()
    Lu = (F.cross_entropy(logits_u_s, targets_u, reduction="none") * mask).mean()
    loss = Lx + args.lambda_u * Lu

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 25 == 0 or step == args.steps - 1:
        print(f"step {step} mask {mask.mean().item():.2f} Lx {Lx.item():.4f} Lu {Lu.item():.4f} loss {loss.item():.4f}")

model.eval()
with torch.no_grad():
    print(f"test accuracy {(model(test_x).argmax(1) == test_y).float().mean().item():.4f}")
