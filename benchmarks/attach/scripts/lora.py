"""
Low-rank adaptation by hand. A base network is first trained on the digits 0-4, then frozen; adapters and a new head are
fine-tuned on the digits 5-9.
"""

import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=4, lora_alpha=8, lora_dropout=0.0):
        super().__init__()
        self.base = base
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        self.scaling = lora_alpha / r
        self.lora_dropout = nn.Dropout(lora_dropout)
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x):
        return self.base(x) + self.lora_dropout(x) @ self.lora_A.T @ self.lora_B.T * self.scaling


class Net(nn.Module):
    def __init__(self, num_classes, dim=48):
        super().__init__()
        self.up_proj = nn.Linear(64, dim)
        self.mid_proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)
        self.score = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = F.gelu(self.up_proj(x))
        x = x + F.gelu(self.mid_proj(x))
        return self.score(self.norm(x))


def inject_lora(model, target_modules, **kwargs):
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and name.split(".")[-1] in target_modules:
            parent = model.get_submodule(name.rpartition(".")[0])
            setattr(parent, name.split(".")[-1], LoRALinear(module, **kwargs))
    return model


def mark_only_lora_as_trainable(model, modules_to_save=("score",)):
    for n, p in model.named_parameters():
        p.requires_grad = "lora_" in n or n.split(".")[0] in modules_to_save


def print_trainable_parameters(model):
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    total = sum(p.numel() for p in model.parameters())
    print(f"trainable params: {trainable:,d} || all params: {total:,d} || trainable%: {100 * trainable / total:.2f}")


def pretrained_base(x, y):
    """The base weights: a few passes of plain gradient descent, cheap enough to do on the spot."""
    net = Net(5)
    for _ in range(60):
        loss = F.cross_entropy(net(x), y)
        grads = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for p, g in zip(net.parameters(), grads, strict=True):
                p -= 0.2 * g
    return net


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--lora_r", type=int, default=4)
    parser.add_argument("--lora_alpha", type=int, default=8)
    parser.add_argument("--learning_rate", type=float, default=3e-3)
    parser.add_argument("--output_dir", default=None)
    args = parser.parse_args()
    torch.manual_seed(0)

    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float32) / 16.0, torch.tensor(digits.target)
    model = pretrained_base(x[y < 5], y[y < 5])
    x, y = x[y >= 5], y[y >= 5] - 5

    model.score = nn.Linear(model.score.in_features, 5)
    model = inject_lora(model, ["up_proj", "mid_proj"], r=args.lora_r, lora_alpha=args.lora_alpha, lora_dropout=0.05)
    mark_only_lora_as_trainable(model)
    print_trainable_parameters(model)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.learning_rate)

    model.train()
    for step in range(args.steps):
        batch = torch.randint(len(x), (32,))
        loss = F.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0 or step == args.steps - 1:
            print({"step": step, "loss": round(loss.item(), 4)})

    output_dir = args.output_dir or tempfile.mkdtemp()
    os.makedirs(output_dir, exist_ok=True)
    adapter = {k: v for k, v in model.state_dict().items() if "lora_" in k or k.startswith("score")}
    torch.save(adapter, os.path.join(output_dir, "adapter_model.bin"))


if __name__ == "__main__":
    main()
