"""What of a config belongs to the fix and what to the setting: fixes are compared within a setting only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eureka.runs import Record

INDIFFERENT = frozenset({"training.probe_every"})
"""Settings that decide what is written about a run and nothing that happens in it; older runs do not have them."""

CONTROLS = {"model.qk_init_scale": 1, "training.qk_lr_scale": 1}
"""Settings outside the fix that act on W_Q and W_K alone, hence on attention: another value than this makes another fix."""


def is_of_fix(key: str) -> bool:
    """Whether a setting is part of what people call the fix."""
    return key.startswith("attention.") or key in CONTROLS


def is_neutral(key: str, value: Any) -> bool:
    """Whether this is a control that changes nothing: a run without the key is then the same."""
    return key in CONTROLS and bool(value == CONTROLS[key])


def setting_keys(configs: Sequence[Record]) -> list[str]:
    """The keys outside the fix, besides learning rate and seed, in which flat configs differ.

    >>> plain = {"attention.name": "softmax", "training.lr": 1e-3, "training.seed": 0, "model.dim": 64}
    >>> setting_keys([plain, {**plain, "training.lr": 1e-4}, {**plain, "model.dim": 128}])
    ['model.dim']
    """
    return [key for key in varied_keys(configs) if not is_of_fix(key) and key not in ("training.lr", "training.seed")]


def varied_keys(configs: Sequence[Record]) -> list[str]:
    """All keys in which flat configs differ."""
    keys = dict.fromkeys(key for config in configs for key in config if key not in INDIFFERENT)
    return [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]
