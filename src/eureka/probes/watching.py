"""The attention calls of a few forward passes, kept for a closer look."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from eureka.attention.operator import Operator
from eureka.attention.softmax import Softmax
from eureka.errors import RequestError
from eureka.patching.attach import attach, detach_all, switch_for
from eureka.patching.choose import Layers, choose
from eureka.patching.seat import Seen
from eureka.patching.sites import Site, find_sites


def sites_of(model: nn.Module, layers: Layers | None) -> list[Site]:
    """The sites that `layers` names; an error when a model has none."""
    found = find_sites(model)
    if not found.sites:
        raise RequestError(f"no attention found in {type(model).__name__} ({found.searched} modules searched).")
    return choose(found.sites, layers)


def attends(model: nn.Module) -> bool:
    """Whether there is anything to watch."""
    return bool(find_sites(model).sites)


@contextmanager
def watching(model: nn.Module, sites: list[Site]) -> Iterator[dict[int, list[Seen]]]:
    """While inside, every attention call of these sites is kept, by the index of the site."""
    token, kept = uuid.uuid4().hex, {site.index: list[Seen]() for site in sites}
    try:
        for site in sites:
            attach(site, token, observer=partial(_keep, kept[site.index]))
        switch_for(model, sites, token)
        yield kept
    finally:
        detach_all(model, sites, token)


def _keep(kept: list[Seen], seen: Seen) -> None:
    kept.append(seen)


def operator_of(seen: Seen) -> Operator:
    """What made the weights of a call; plain softmax when the model used its own attention."""
    return Softmax() if seen.operator is None else seen.operator


def run_model(model: nn.Module, inputs: Any) -> Any:
    """model(inputs), or model(**inputs) for a mapping, as Hugging Face wants it."""
    return model(**inputs) if isinstance(inputs, Mapping) else model(inputs)


def main_output(output: Any) -> Tensor:
    """The tensor that a model or layer gives, out of whatever it is wrapped in."""
    if isinstance(output, Tensor):
        return output
    for name in ("logits", "last_hidden_state"):
        if isinstance(getattr(output, name, None), Tensor):
            return getattr(output, name)  # type: ignore[no-any-return]
    first = next(iter(output.values() if isinstance(output, Mapping) else output))
    return main_output(first)


@contextmanager
def as_is(model: nn.Module) -> Iterator[None]:
    """In eval mode, and back in whatever mode every module was."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        for module, mode in modes.items():
            module.training = mode
