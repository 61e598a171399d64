"""
Data-parallel training. Alone:

    python ddp.py

or with two processes:

    torchrun --standalone --nproc_per_node=2 ddp.py
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--batch-size", type=int, default=32, help="per process")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--out", default=None)
    return parser.parse_args()


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.fc = nn.Linear(32 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc(torch.flatten(x, 1))


def main():
    args = parse_args()
    ddp = int(os.environ.get("RANK", -1)) != -1
    if ddp:
        dist.init_process_group(backend="gloo")
        rank, world_size = dist.get_rank(), dist.get_world_size()
    else:
        rank, world_size = 0, 1
    master_process = rank == 0
    torch.manual_seed(1337)

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16.0
    y = torch.tensor(digits.target)
    train_set, val_set = TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])
    sampler = DistributedSampler(train_set, num_replicas=world_size, rank=rank, shuffle=True)
    loader = DataLoader(train_set, batch_size=args.batch_size, sampler=sampler, drop_last=True)

    model = ConvNet()
    raw_model = model
    if ddp:
        model = DDP(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    step, epoch = 0, 0
    while step < args.steps:
        sampler.set_epoch(epoch)
        model.train()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                mean_loss = loss.detach().clone()
                if ddp:
                    dist.all_reduce(mean_loss, op=dist.ReduceOp.SUM)
                    mean_loss /= world_size
                if master_process:
                    print(f"step {step} | epoch {epoch} | loss {mean_loss.item():.4f}")
            if step >= args.steps:
                break
        epoch += 1

    if master_process:
        raw_model.eval()
        with torch.no_grad():
            logits = raw_model(val_set.tensors[0])
        accuracy = (logits.argmax(1) == val_set.tensors[1]).float().mean().item()
        print(f"val loss {F.cross_entropy(logits, val_set.tensors[1]).item():.4f} accuracy {accuracy:.4f}")
        out = args.out or tempfile.mkdtemp()
        os.makedirs(out, exist_ok=True)
        torch.save(raw_model.state_dict(), os.path.join(out, "model.pt"))
    if ddp:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
