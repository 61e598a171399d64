"""Have the tokens become alike? How far those of a sample differ from each other, from layer to layer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.formats import number

ALIKE = 0.02
"""Tokens whose differences are below this share of their size are alike."""


def check(exam: Exam) -> Iterator[Finding]:
    """Training makes tokens alike for a while in many healthy runs; a model that is to blame does so with fresh weights too."""
    if exam.well:
        return
    found = _collapse(exam)
    if found is None or _collapse(exam.anew, 5 * ALIKE) is None:
        return
    first, last = found
    yield Finding(
        cause="rank_collapse",
        sure=0.85,
        explains=0.9,
        evidence=(
            f"Tokens of a sample differ by {number(first)} of their size in the first layers and by {number(last)} in the last:"
            " deeper layers see the same token everywhere.",
        ),
        advice="look for missing skip connections and for norms that undo them; a shallower model or residual scaling helps too.",
        numbers={"first": first, "last": last},
    )


def _collapse(exam: Exam, alike: float = ALIKE) -> tuple[float, float] | None:
    """How far tokens differ in the first layers and in the last, if that is far less."""
    differences = _differences(exam)
    if len(differences) < 4:
        return None
    first, last = max(differences[: len(differences) // 3]), max(differences[-2:])
    return (first, last) if last <= alike and first >= 5 * last else None


def _differences(exam: Exam) -> list[float]:
    """For each module that gives tokens, in the order of the calls, how far the tokens of a sample differ, by their size."""
    found: list[tuple[int, float]] = []

    def keep(_name: str, _module: nn.Module, _args: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) and output else output
        if isinstance(output, Tensor) and output.dim() == 3 and output.is_floating_point() and output.shape[1] > 1:
            found.append((output.shape[1], difference(output.detach())))

    exam.observe(keep)
    usual = max({length for length, _ in found}, key=[length for length, _ in found].count, default=0)
    return [value for length, value in found if length == usual]


def difference(tokens: Tensor) -> float:
    """How far the tokens of a sample are from their mean, by their size: (B, T, D)."""
    x = tokens.float()
    centred = x - x.mean(dim=1, keepdim=True)
    return float(centred.square().mean().sqrt() / x.square().mean().sqrt().clamp_min(torch.finfo().tiny))
