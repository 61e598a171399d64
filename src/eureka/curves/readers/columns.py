"""Which column is the loss, which the step, which the learning rate: a sensible guess by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from eureka.curves.readers.source import ROWS, Source
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
"""Columns that are not a loss, whatever else is known of them."""


def find_step(source: Source, wanted: str | None) -> str:
    """The column of the steps: the one wanted, a likely name, the first of several nameless columns, or the row number."""
    if source.own_steps:
        return ROWS
    if wanted is not None:
        return known(source.names, wanted, "column")
    if not source.has_header:
        return source.names[0] if len(source.names) > 1 else ROWS
    return _first(source.names, STEPS) or ROWS


def find_loss(source: Source, step: str, rate: str | None, wanted: str | None) -> str | None:
    """The column of the loss: the one wanted, the likeliest name, else the first that is nothing else."""
    if wanted is not None:
        return known(source.names, wanted, "column")
    others = [name for name in source.names if name not in (step, rate)]
    plain = [name for name in others if not re.fullmatch(ASIDE, _tail(name))]
    return _first(plain, LOSSES) or next((name for name in plain if not _matches(name, STEPS)), None) or next(iter(others), None)


def find_rate(source: Source, wanted: str | None) -> str | None:
    """The column of the learning rate, if there is one."""
    return known(source.names, wanted, "column") if wanted is not None else _first(source.names, RATES)


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
