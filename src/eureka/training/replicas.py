"""One run on several processes (torchrun, DDP), or on one, with the same words.

Every process draws the same whole batch and takes its own part of it, so that the samples of a run do not depend on how many
processes there are.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from eureka.errors import RequestError
from eureka.tasks.task import Batch


@dataclass(frozen=True)
class Replicas:
    """Which of how many processes this is. The first one writes; all of them compute."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """This process's part of a batch."""
        return batch if self.count == 1 else map_batch(batch, lambda tensor: tensor[self.rank :: self.count])

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model whose gradients are averaged over all processes."""
        return model if self.count == 1 else nn.parallel.DistributedDataParallel(model)

    def mean(self, value: Tensor) -> Tensor:
        """The mean over all processes."""
        if self.count > 1:
            value = value.clone()
            dist.all_reduce(value)
            value /= self.count
        return value

    def agree(self, wish: int) -> int:
        """The greatest wish of all processes: they stop together or not at all."""
        if self.count == 1:
            return wish
        flag = torch.tensor(wish)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return int(flag)


def join_replicas(batch_size: int, device: str) -> Replicas:
    """What torchrun says in the environment; alone without it."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return Replicas()
    if batch_size % count:
        raise RequestError(f"training.batch_size ({batch_size}) must be a multiple of the number of processes ({count}).")
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device == "cuda" else "gloo")
        atexit.register(leave)
    return Replicas(dist.get_rank(), count)


def leave() -> bool:
    """Leave the group of processes, whose threads must end before this process does; whether there was one."""
    if not dist.is_initialized():
        return False
    dist.destroy_process_group()
    return True


def map_batch(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    """The same batch with every tensor changed."""
    return Batch(change(batch.inputs), change(batch.labels), {name: change(step) for name, step in batch.steps.items()})
