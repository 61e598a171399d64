"""Park a fork: its tensors leave the device, and come back bit for bit. Its modules, hooks and operators stay as they are."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from eureka.forks.case import Fork


class Parking:
    """Where forks wait: in main memory, or in files of a folder that lives as long as this object."""

    def __init__(self, *, files: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="eureka-forks-")) if files else None
        if files:
            weakref.finalize(self, shutil.rmtree, str(self.folder), ignore_errors=True)

    def park(self, fork: Fork) -> Parked:
        """Take the tensors of a fork away; `Parked.wake` brings them back."""
        tensors = _that_leave(fork)
        gradients = [tensor.grad for tensor in tensors]
        devices = [tensor.device for tensor in tensors]
        values = [tensor.detach().cpu() for tensor in [*tensors, *(one for one in gradients if one is not None)]]
        kept: list[Tensor] | Path = self._write(values) if self.folder is not None else values
        empty(fork)
        return Parked(fork, kept, devices, [gradient is not None for gradient in gradients])

    def _write(self, values: list[Tensor]) -> Path:
        assert self.folder is not None
        with tempfile.NamedTemporaryFile(dir=self.folder, suffix=".pt", delete=False) as file:
            torch.save(values, file)
        return Path(file.name)


class Parked:
    """A fork whose tensors are elsewhere."""

    def __init__(self, fork: Fork, kept: list[Tensor] | Path, devices: list[torch.device], graded: list[bool]) -> None:
        self.fork, self._kept, self._devices, self._graded = fork, kept, devices, graded

    def wake(self, other: Fork | None = None) -> Fork:
        """Bring the tensors back; into a copy of the parked fork, if it is given: then they stay here as well."""
        fork = self.fork if other is None else other
        shared = other is not None and isinstance(self._kept, list)
        values = iter(_read(self._kept))
        tensors = _that_leave(fork)
        for tensor, device in zip(tensors, self._devices, strict=True):
            value = next(values)
            tensor.data = value.to(device, copy=shared)
        for tensor, device, graded in zip(tensors, self._devices, self._graded, strict=True):
            if graded:
                tensor.grad = next(values).to(device, copy=shared)
        if other is None:
            self.forget()
        return fork

    def forget(self) -> None:
        """Delete what was kept."""
        if isinstance(self._kept, Path):
            self._kept.unlink(missing_ok=True)
        self._kept = []


def empty(fork: Fork) -> None:
    """Free the memory of all its tensors now; what refers to them may live longer."""
    for tensor in _that_leave(fork):
        tensor.grad = None
        tensor.data = torch.empty(0, dtype=tensor.dtype, device=tensor.device)


def tensors_of(fork: Fork) -> list[Tensor]:
    """Every tensor of a fork once: parameters, buffers, and what the optimiser remembers."""
    found = [*fork.model.parameters(), *fork.model.buffers(), *_parameters(fork), *_remembered(fork)]
    return list({id(tensor): tensor for tensor in found}.values())


def parameters_beside(model: nn.Module, optimizer: Optimizer) -> list[Tensor]:
    """What the optimiser trains besides the model, such as the parameters of a loss."""
    own = {id(one) for one in model.parameters()}
    return [one for group in optimizer.param_groups for one in group["params"] if id(one) not in own]


def _that_leave(fork: Fork) -> list[Tensor]:
    """All but the parameters beside the model: a loss of the user's may compute with those while the user's run is parked."""
    stay = {id(one) for one in parameters_beside(fork.model, fork.optimizer)}
    return [one for one in tensors_of(fork) if id(one) not in stay]


def size_of(fork: Fork) -> int:
    """The bytes of a fork."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(fork))


def _parameters(fork: Fork) -> Iterator[Tensor]:
    for group in fork.optimizer.param_groups:
        yield from group["params"]


def _remembered(fork: Fork) -> Iterator[Tensor]:
    for parameter in _parameters(fork):
        state: Any = fork.optimizer.state.get(parameter, {})
        yield from (leaf for leaf in tree_leaves(state) if isinstance(leaf, Tensor))


def _read(kept: list[Tensor] | Path) -> list[Tensor]:
    if isinstance(kept, list):
        return kept
    values: list[Tensor] = torch.load(kept, weights_only=True)
    return values
