"""Say in one sentence why a model has no positions that could be rescaled."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from torch import nn

from eureka.formats import listing
from eureka.probes.additions import Sources
from eureka.probes.positions import Search

KINDS: Mapping[str, re.Pattern[str]] = {
    "ALiBi": re.compile(r"alibi|ALiBi|Alibi"),
    "rotary": re.compile(r"rotary|(^|[._])rope|R[oO][pP][eE]"),
    "relative": re.compile(r"relative_(attention|position)|RelativePosition|(^|[._])rel_pos"),
}
"""Kinds of positions that are not added to the content, by names of modules, classes, parameters and methods. Falcon
with ALiBi has a rotary module all the same."""
CONFIG: Mapping[str, tuple[str, ...]] = {
    "rotary": ("rope_theta", "rope_parameters", "rope_scaling"),
    "ALiBi": ("alibi",),
    "relative": ("relative_attention_num_buckets",),
}


def why_none(model: nn.Module, found: Search) -> str:
    """No learned positions were found; which kind there is, if it can be told."""
    if found.fixed is not None:
        return f"no learned positions: those of {type(model).__name__} are fixed ({fixed_names(found.fixed)})."
    kind = next((kind for kind in KINDS if _has(model, kind)), None)
    if kind is not None:
        return f"no learned positions: those of {type(model).__name__} are {kind} and act inside the attention."
    if found.undecided:
        return (
            f"no learned positions were found in {type(model).__name__} on this batch: its samples are all alike, also when they"
            " are turned round, which does not tell positions from content; pass samples that differ."
        )
    if found.zero:
        return (
            f"no learned positions were found in {type(model).__name__}, but {listing(sorted(found.zero[0]))} is all zero and"
            " added token by token, and no factor changes that; if these are positions, or a gate before them, initialise them"
            " first, for instance with nn.init.trunc_normal_(…, std=0.02)."
        )
    if found.later:
        names = sorted(frozenset[str]().union(*(addition.sources for addition in found.later)))
        return (
            f"no learned positions were found in {type(model).__name__} before its first attention; {listing(names)} is added"
            " after it, and is as it was."
        )
    return (
        f"no learned positions were found in {type(model).__name__} on this batch: what is looked for is a sum before its first"
        " attention, with a learned vector for each token that is the same for every sample."
    )


def fixed_names(sources: Sources) -> str:
    """Buffers and frozen parameters, or that there are none."""
    return listing(sorted(sources)) if sources else "computed anew in each pass"


def _has(model: nn.Module, kind: str) -> bool:
    config: Any = getattr(model, "config", None)
    if any(getattr(config, key, None) for key in CONFIG[kind]):
        return True
    names = [name for name, _ in (*model.named_modules(), *model.named_parameters(), *model.named_buffers())]
    classes = {type(module) for module in model.modules()}
    own = [key for module in model.modules() for key in (*_set(module), *vars(type(module)))]
    return any(KINDS[kind].search(name) for name in (*names, *own, *(cls.__name__ for cls in classes)))


def _set(module: nn.Module) -> list[str]:
    """Attributes that are neither None nor False: BEiT has `relative_position_bias = None` if it has none."""
    return [key for key, value in vars(module).items() if value is not None and value is not False]
