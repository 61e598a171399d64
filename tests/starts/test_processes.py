"""A clear start where a model is trained by several processes."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

import eureka
from tests.starts.twins import refusal

PROCESSES = 2


def encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, nhead=2, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=1, enable_nested_tensor=False)


def batch_of(rank: int) -> torch.Tensor:
    """Another one for each process."""
    return torch.randn(4, 6, 16, generator=torch.Generator().manual_seed(rank))


def sharded() -> nn.Module:
    model = encoder()
    fully_shard(model, mesh=init_device_mesh("cpu", (PROCESSES,)))
    return model


WRAPPED: dict[str, Callable[[], nn.Module]] = {
    "DistributedDataParallel": lambda: nn.parallel.DistributedDataParallel(encoder()),
    "FullyShardedDataParallel": lambda: FullyShardedDataParallel(encoder(), device_id=torch.device("cpu")),
    "FSDPTransformerEncoder": sharded,
}


def ask(rank: int, folder: str) -> None:
    """One process: what it is told of each wrapped model, and its weights where the start came first."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # those of FSDP about this machine
    model = encoder()
    eureka.clear_start(model, batch_of(rank), positions=None)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=PROCESSES)
    told = {name: refusal(make(), batch_of(rank), positions=None) for name, make in WRAPPED.items()}
    own = {name: value.clone() for name, value in model.state_dict().items()}
    together = nn.parallel.DistributedDataParallel(model).module.state_dict()
    torch.save({"told": told, "own": own, "together": together}, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
def test_a_model_of_several_processes_is_refused_and_wrapping_it_afterwards_keeps_replicas_equal(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=ask, args=(rank, str(tmp_path)), daemon=True) for rank in range(PROCESSES)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=300)
    assert [process.exitcode for process in processes] == [0, 0]
    one, other = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(PROCESSES))
    for name in WRAPPED:
        assert one["told"][name] == other["told"][name]
        assert "eureka.clear_start works in one process" in one["told"][name]
        assert "before init_process_group" in one["told"][name]
    assert not all(torch.equal(one["own"][name], other["own"][name]) for name in one["own"])
    assert all(torch.equal(one["together"][name], other["together"][name]) for name in one["own"])
