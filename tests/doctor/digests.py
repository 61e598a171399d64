"""A digest of everything that a diagnosis must leave as it was."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten


def digest(*things: Any) -> dict[str, str]:
    """By name: tensors bit for bit, settings, modes, hooks, gradients, and all random numbers."""
    found = dict(_random())
    for number, thing in enumerate(things):
        found |= {f"{number} {name}": value for name, value in _of(thing)}
    return found


def _random() -> Iterator[tuple[str, str]]:
    yield "torch", _hash(torch.get_rng_state())
    yield "numpy", repr([_hash(one) for one in np.random.get_state()])
    yield "python", _hash(random.getstate())


def _of(thing: Any) -> Iterator[tuple[str, str]]:
    if isinstance(thing, nn.Module):
        for name, tensor in [*thing.named_parameters(), *thing.named_buffers()]:
            yield name, f"{id(tensor)} {_hash(tensor)} {tensor.requires_grad} {_hash(tensor.grad)}"
        for name, module in thing.named_modules():
            hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
            kept = {key: id(value) for key, value in vars(module).items() if not key.startswith("_")}
            yield name, repr((module.training, [sorted(map(id, one.values())) for one in hooks], kept))
    elif isinstance(thing, torch.optim.Optimizer):
        yield "state", _hash(thing.state_dict())
        yield "settings", repr([{key: _hash(value) for key, value in group.items()} for group in thing.param_groups])
        yield "ids", repr([[id(one) for one in group["params"]] for group in thing.param_groups])
    elif isinstance(thing, torch.Generator):
        yield "generator", _hash(thing.get_state())
    else:
        yield "value", _hash(thing)


def _hash(value: Any) -> str:
    leaves, shape = tree_flatten(value)
    parts = [_bytes(leaf) for leaf in leaves]
    return hashlib.sha256(b"|".join([str(shape).encode(), *parts])).hexdigest()


def _bytes(leaf: Any) -> bytes:
    if isinstance(leaf, Tensor):
        plain = leaf.detach().cpu().contiguous()
        return f"{plain.dtype} {tuple(plain.shape)}".encode() + plain.flatten().view(torch.uint8).numpy().tobytes()
    return leaf.tobytes() if isinstance(leaf, np.ndarray) else repr(leaf).encode()
