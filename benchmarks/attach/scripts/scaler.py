"""Mixed precision with a gradient scaler: autocast, scale, unscale, clip, step, update."""

import argparse
import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class ResidualMLP(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.inp = nn.Linear(64, width)
        self.blocks = nn.ModuleList(
            [
                nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
                for _ in range(depth)
            ]
        )
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + block(x)
        return self.out(x)


def evaluate(model, loader, device, amp_dtype):
    model.eval()
    correct, n = 0, 0
    with torch.no_grad(), torch.autocast(device_type=device, dtype=amp_dtype):
        for x, y in loader:
            correct += (model(x.to(device)).argmax(1) == y.to(device)).sum().item()
            n += len(y)
    model.train()
    return correct / n


def main(args):
    torch.manual_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    amp_dtype = torch.float16 if args.dtype == "fp16" else torch.bfloat16

    digits = load_digits()
    x = torch.from_numpy(digits.data).float().div(16).sub(0.3).div(0.38)
    y = torch.from_numpy(digits.target)
    train_loader = DataLoader(TensorDataset(x[:1500], y[:1500]), batch_size=args.batch_size, shuffle=True, drop_last=True)
    test_loader = DataLoader(TensorDataset(x[1500:], y[1500:]), batch_size=256)

    model = ResidualMLP(48, 2).to(device)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.05)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)
    scaler = torch.amp.GradScaler(device, init_scale=2.0**12)

    global_step = 0
    while global_step < args.steps:
        for inputs, targets in train_loader:
            inputs, targets = inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device_type=device, dtype=amp_dtype):
                outputs = model(inputs)
                loss = criterion(outputs, targets)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=args.clip)
            scaler.step(optimizer)
            scaler.update()
            if global_step % 20 == 0:
                print(f"[{global_step:4d}] loss: {loss.item():.4f}  scale: {scaler.get_scale():.0f}")
            global_step += 1
            if global_step >= args.steps:
                break

    print(f"final loss: {loss.item():.4f}  test accuracy: {evaluate(model, test_loader, device, amp_dtype):.3f}")
    out_dir = args.out_dir or tempfile.mkdtemp()
    os.makedirs(out_dir, exist_ok=True)
    torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, os.path.join(out_dir, "last.pth"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--dtype", choices=["fp16", "bf16"], default="fp16")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out-dir", default=None)
    main(parser.parse_args())
