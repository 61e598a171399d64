"""The whole state of a model and its optimiser, kept; and put into the same objects, or into copies of them, in place."""

from __future__ import annotations

import copy
import mmap
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eureka.forks.case import Fork
from eureka.forks.parking import parameters_beside


@dataclass(frozen=True)
class State:
    """Everything that training changes; parameters of the optimiser are known by their place in its groups."""

    tensors: dict[str, Tensor]
    """parameters and buffers by name, also buffers that a `state_dict` leaves out"""
    gradients: dict[str, Tensor]
    beside: list[Tensor]
    """parameters that the optimiser trains besides the model, in the order of its groups"""
    beside_gradients: list[Tensor | None]
    remembered: list[list[dict[str, Any] | None]]
    """what the optimiser remembers of each parameter of each group; None for one that it has not met yet"""
    settings: list[dict[str, Any]]
    """of the optimiser's groups"""
    devices: list[list[dict[str, Any] | None]]
    """of what is remembered: some optimisers count steps in main memory"""


class KeptState:
    """A copy of a state, in main memory or, where a folder is given, in a file: then there is no second copy in memory."""

    def __init__(self, fork: Fork, folder: Path | None = None) -> None:
        state = _state(fork)
        if folder is None:
            self._kept: State | Path = tree_map(_copied, state)
        else:
            with tempfile.NamedTemporaryFile(dir=folder, suffix=".pt", delete=False) as file:
                torch.save(state, file)
            self._kept = Path(file.name)

    @torch.no_grad()
    def put(self, fork: Fork) -> None:
        """Write the state into a model and its optimiser; references to parameters stay valid."""
        state = _mapped(self._kept) if isinstance(self._kept, Path) else self._kept
        named = dict(fork.model.named_parameters())
        for name, tensor in [*named.items(), *fork.model.named_buffers()]:
            if name in state.tensors:
                tensor.copy_(state.tensors[name])
        for name, parameter in named.items():
            _put_gradient(parameter, state.gradients.get(name))
        beside = parameters_beside(fork.model, fork.optimizer)
        for one, kept, gradient in zip(beside, state.beside, state.beside_gradients, strict=True):
            one.copy_(kept)
            _put_gradient(one, gradient)
        groups = zip(fork.optimizer.param_groups, state.settings, state.remembered, state.devices, strict=True)
        for group, settings, remembered, devices in groups:
            _put_group(fork, group, settings, zip(group["params"], remembered, devices, strict=True))


def _mapped(file: Path) -> State:
    """A state that stays in its file; its pages are read as they are used, and count as the file's, not as this process's."""
    with torch.serialization.set_default_mmap_options(mmap.MAP_SHARED):
        state: State = torch.load(file, mmap=True, weights_only=False)
    return state


def _put_gradient(parameter: Tensor, gradient: Tensor | None) -> None:
    parameter.grad = None if gradient is None else gradient.to(parameter.device, copy=True)


def _put_group(fork: Fork, group: dict[str, Any], settings: dict[str, Any], remembered: Any) -> None:
    for key in [key for key in group if key != "params" and key not in settings]:
        del group[key]
    group.update(copy.deepcopy(settings))
    for parameter, values, devices in remembered:
        fork.optimizer.state.pop(parameter, None)
        if values is not None:
            fork.optimizer.state[parameter] = tree_map(_placed, values, devices)


def _state(fork: Fork) -> State:
    """The state itself, not a copy."""
    named, groups = dict(fork.model.named_parameters()), fork.optimizer.param_groups
    met = fork.optimizer.state
    beside = parameters_beside(fork.model, fork.optimizer)
    remembered = [[dict(met[one]) if one in met else None for one in group["params"]] for group in groups]
    return State(
        tensors={name: tensor.detach() for name, tensor in [*named.items(), *fork.model.named_buffers()]},
        gradients={name: parameter.grad.detach() for name, parameter in named.items() if parameter.grad is not None},
        beside=[one.detach() for one in beside],
        beside_gradients=[None if one.grad is None else one.grad.detach() for one in beside],
        remembered=remembered,
        settings=[{key: value for key, value in group.items() if key != "params"} for group in groups],
        devices=tree_map(_device, remembered),
    )


def _device(value: Any) -> str:
    return str(value.device) if isinstance(value, Tensor) else ""


def _placed(value: Any, device: str) -> Any:
    return value.to(device, copy=True) if isinstance(value, Tensor) else copy.deepcopy(value)


def _copied(value: Any) -> Any:
    return value.to("cpu", copy=True) if isinstance(value, Tensor) else copy.deepcopy(value)
