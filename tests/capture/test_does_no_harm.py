"""A script that was examined and goes on ends as if nobody had looked: weights, optimiser, random numbers and losses."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

from tests.capture.fork_server import SECONDS, Command

SCRIPT = """
import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, place):
        jitter = random.random() + float(np.random.default_rng(place).random())
        return torch.randn(1, 8, 8) * jitter, place % 4


torch.set_num_threads(2)
torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
loader = DataLoader(Noise(), batch_size=8, shuffle=True, num_workers=2)
model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(1152, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=60)
losses = []
for epoch in range(5):
    model.train()
    for x, y in loader:
        if random.random() < 0.5:
            x = x.flip(-1)
        x = x + 0.1 * torch.from_numpy(np.random.standard_normal(x.shape)).float()
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        losses.append(model(x).std().item())
torch.save(
    {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "losses": losses,
        "random": [torch.get_rng_state(), random.getstate(), np.random.get_state(), torch.get_num_threads()],
    },
    "end.pt",
)
"""

RANKS = """
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 3)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
losses = []
for step in range(60):
    x = torch.randn(16, 6)
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
weights, states, noise = model.module.state_dict(), optimizer.state_dict(), torch.get_rng_state()
os.makedirs(f"rank{rank}")
torch.save({"weights": weights, "optimizer": states, "losses": losses, "random": noise}, f"rank{rank}/end.pt")
dist.barrier()
dist.destroy_process_group()
"""


def digest(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def two_folders(tmp_path: Path, text: str) -> tuple[Path, Path]:
    """The same script in two folders: torch.save writes the name of its file into it."""
    folders = tmp_path / "alone", tmp_path / "examined"
    for folder in folders:
        folder.mkdir()
        (folder / "train.py").write_text(text)
    return folders


def run(folder: Path, *arguments: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run a command of Python's: on the loopback, and with threads that wait for each other without taking a core."""
    environment = os.environ | {"XDG_STATE_HOME": str(folder), "GLOO_SOCKET_IFNAME": "lo", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def test_a_script_that_was_examined_ends_with_the_bits_of_an_undisturbed_one(tmp_path: Path) -> None:
    alone, examined = two_folders(tmp_path, SCRIPT)
    run(alone, "train.py")
    done = run(examined, "-m", "eureka", "diagnose", "--at", "10", "--then", "go", "--budget", "100steps", "train.py")
    assert "every loss and all weights came out with the same bits" in done.stdout
    assert digest(examined / "end.pt") == digest(alone / "end.pt")


def test_ranks_that_were_examined_end_with_the_bits_of_undisturbed_ones(tmp_path: Path) -> None:
    alone, examined = two_folders(tmp_path, RANKS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1]), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [Command("python", ["train.py"], alone, **group, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ours = ["-m", "eureka", "diagnose", "--at", "10", "--then", "go", "--budget", "100steps"]
    done = run(examined, *torchrun, *ours, "train.py", seconds=2 * SECONDS)
    ended = [rank.end() for rank in ranks]
    assert [one.code for one in ended] == [0, 0], ended
    assert len(re.findall("every loss and all weights came out with the same bits", done.stdout)) == 1  # rank 0 speaks
    ends = [folder / f"rank{rank}" / "end.pt" for folder in (alone, examined) for rank in range(2)]
    digests = [digest(end) for end in ends]
    assert digests[:2] == digests[2:]
    assert digests[0] != digests[1]  # each rank has batches and random numbers of its own
