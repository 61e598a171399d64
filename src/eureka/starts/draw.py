"""Draw learned positions that start at zero, as those of DeiT, BEiT and Swin: they have no direction that could be scaled.

A table that is zero and is added token by token is filled with normal numbers. If it acts as positions then, it stays so; a
table of segments, say, is put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from eureka.patching.attach import Site
from eureka.probes.follow import is_table
from eureka.probes.positions import Search, search, trainable
from eureka.starts.calibrate import Kept


def draw(
    model: nn.Module, inputs: Any, sites: Sequence[Site], first: Search, seed: int, kept: Kept
) -> tuple[Search, frozenset[str]]:
    """Draw the zero tables of `first` that are positions; a search that finds them, and their names.

    What is zero and no table is still in `Search.zero`: a gate, for instance, may be zero for a reason of its own.
    """
    parameters, generator = trainable(model), torch.Generator().manual_seed(seed)
    tables = [names for names in first.zero if all(_is_zero_table(parameters[name]) for name in names)]
    trial = sorted(frozenset[str]().union(*tables))
    for name in trial:
        kept.fill(parameters[name], torch.randn(parameters[name].shape, generator=generator))
    positions = frozenset[str]().union(*(addition.sources for addition in search(model, inputs, sites).learned))
    if others := [parameters[name] for name in trial if name not in positions]:
        kept.put_back(others)
    gates = tuple(names for names in first.zero if names not in tables)
    return replace(search(model, inputs, sites), zero=gates), positions.intersection(trial)


def _is_zero_table(parameter: nn.Parameter) -> bool:
    return is_table(parameter) and not parameter.any()
