"""Matrices by orthogonalised momentum, everything else by AdamW: two optimisers after one backward pass."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


def orthogonalize(G, steps=5):
    """An odd polynomial, iterated, that brings the singular values of G near one."""
    a, b, c = 2.0, -1.5, 0.5
    X = G / (G.norm() + 1e-7)
    transposed = X.size(0) > X.size(1)
    if transposed:
        X = X.T
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if transposed else X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, nesterov=True, weight_decay=0.0):
        super().__init__(params, dict(lr=lr, momentum=momentum, nesterov=nesterov, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buf = state["momentum_buffer"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(buf, group["momentum"]) if group["nesterov"] else buf
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(orthogonalize(g), alpha=-group["lr"] * max(1, p.size(0) / p.size(1)) ** 0.5)


class RowTransformer(nn.Module):
    """Reads an image as eight rows."""

    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.embed = nn.Linear(8, dim)
        self.pos = nn.Parameter(torch.zeros(8, dim))
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.fc1, self.fc2 = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)
        self.head = nn.Linear(dim, 10)
        self.heads = heads

    def forward(self, x):
        x = self.embed(x) + self.pos
        B, T, C = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(B, T, C)
        x = x + self.proj(y)
        x = x + self.fc2(F.relu(self.fc1(self.norm2(x))).square())
        return self.head(self.norm3(x).mean(dim=1))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=200)
args = parser.parse_args()
torch.manual_seed(0)

digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32) / 16.0
labels = torch.tensor(digits.target)
model = RowTransformer()

matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and n.split(".")[0] in ("qkv", "proj", "fc1", "fc2")]
others = [p for p in model.parameters() if all(p is not m for m in matrices)]
optimizer1 = torch.optim.AdamW(others, lr=3e-3, betas=(0.8, 0.95), weight_decay=0.0)
optimizer2 = Muon(matrices, lr=0.01, momentum=0.95)
optimizers = [optimizer1, optimizer2]
schedulers = [torch.optim.lr_scheduler.LinearLR(o, 1.0, 0.1, total_iters=args.steps) for o in optimizers]

for step in range(args.steps):
    idx = torch.randint(1500, (64,))
    loss = F.cross_entropy(model(images[idx]), labels[idx])
    loss.backward()
    for opt, sched in zip(optimizers, schedulers, strict=True):
        opt.step()
        sched.step()
    model.zero_grad(set_to_none=True)
    if step % 20 == 0 or step == args.steps - 1:
        print(f"step:{step}/{args.steps} train_loss:{loss.item():.4f}")

with torch.no_grad():
    val = F.cross_entropy(model(images[1500:]), labels[1500:])
    acc = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
print(f"val_loss:{val.item():.4f} val_acc:{acc.item():.4f}")
