"""Which column is the loss, which the step, which the learning rate: a sensible guess by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eureka.curves.readers.series import ROWS, Log
from eureka.errors import UnknownNameError

STEPS = (
    r"(global|train(er|ing)?|opt\w*)?[_/. ]*(global)?_?steps?",
    r"_step|iter(ation)?s?(_num)?|n_iter|it|updates?|batch(es)?",
    r"tokens(_seen)?|samples(_seen)?|epochs?|t|x|index",
)
LOSSES = (
    r"(train(ing)?[-_/. ]*)?loss([-_/. ]*train(ing)?)?",
    r".*train.*loss.*|.*loss.*train.*",
    r"lm[-_ ]?loss|mlm[-_ ]?loss|total[-_ ]?loss|.*(?<!val)(?<!valid)(?<!eval)(?<!test)(?<!validation)[-_/. ]loss",
    r".*loss.*",
    r".*(nll|cross[-_ ]?entropy|perplexity|ppl|bpb|bits).*",
    r".*(mse|rmse|error|cost|objective).*|y|value",
)
RATES = (r"(.*[-_/. ])?(lr|learning[-_ ]?rate)([-_/. ].*)?",)
ASIDE = r".*(__min|__max)$|.*(time|runtime|per_second|timestamp|grad|norm|flops|memory|seed|scale|accuracy|acc)([-_/. ].*)?$"
"""Columns that are not a loss, whatever else their names say."""


def find_step(log: Log, wanted: str | None) -> str:
    """The column of the steps: the wanted one, a likely name, the first of several columns without names, or the row number."""
    if log.own_steps:
        return ROWS
    if wanted is not None:
        return known(log.names, wanted, "column")
    if not log.has_header:
        return log.names[0] if len(log.names) > 1 else ROWS
    return _first(log.names, STEPS) or ROWS


def find_loss(log: Log, step: str, rate: str | None, wanted: str | None) -> str | None:
    """The column of the loss: the wanted one, the likeliest name, else the first column that is nothing else."""
    if wanted is not None:
        return known(log.names, wanted, "column")
    others = [name for name in log.names if name not in (step, rate)]
    plain = [name for name in others if not re.fullmatch(ASIDE, _tail(name))]
    return _first(plain, LOSSES) or next((name for name in plain if not _matches(name, STEPS)), None) or next(iter(others), None)


def find_rate(log: Log, wanted: str | None) -> str | None:
    """The column of the learning rate, if there is one."""
    return known(log.names, wanted, "column") if wanted is not None else _first(log.names, RATES)


def known(names: Sequence[str], wanted: str, kind: str) -> str:
    if wanted not in names:
        raise UnknownNameError(kind, wanted, names)
    return wanted


def _tail(name: str) -> str:
    """A W&B export calls its columns ``run name - metric``."""
    return name.rpartition(" - ")[2].strip().lower()


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(re.fullmatch(pattern, _tail(name)) for pattern in patterns)


def _first(names: Sequence[str], patterns: Sequence[str]) -> str | None:
    """The first name that fits the first pattern that any name fits."""
    return next((name for pattern in patterns for name in names if re.fullmatch(pattern, _tail(name))), None)
