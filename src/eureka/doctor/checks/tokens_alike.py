"""Have the tokens become alike? How far they differ from each other in the last layers, beside the gradient that is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.formats import number
from eureka.patching.attach import find_sites

ALIKE = 0.02
"""Tokens whose differences are below this share of their size."""


def check(exam: Exam) -> Iterator[Finding]:
    if exam.learning:
        return
    differences = _differences(exam)
    if len(differences) < 2:
        return
    first, last = differences[0], differences[-1]
    if last > ALIKE or first < 5 * last:
        return
    yield Finding(
        cause="rank_collapse",
        sure=0.85,
        explains=0.9,
        evidence=(
            f"Tokens of a sample differ by {number(first)} of their size before the first attention and by {number(last)} before"
            " the last: deeper layers see the same token everywhere.",
        ),
        advice="look for missing skip connections and for norms that undo them; a shallower model or residual scaling helps too.",
        numbers={"first": first, "last": last},
    )


def _differences(exam: Exam) -> list[float]:
    """For each attention layer, how far the tokens that enter it differ, by their size."""
    model = exam._glass.model
    found: list[float] = []
    sites = find_sites(model).sites
    handles = [site.module.register_forward_pre_hook(_keep(found), with_kwargs=True) for site in sites]
    try:
        exam.peek()
    finally:
        for handle in handles:
            handle.remove()
    return found


def _keep(found: list[float]) -> Any:
    def keep(_: nn.Module, args: Any, kwargs: Any) -> None:
        entering = next((one for one in (*args, *kwargs.values()) if isinstance(one, Tensor) and one.dim() == 3), None)
        if entering is not None and entering.shape[1] > 1:
            x = entering.detach().float()
            centred = x - x.mean(dim=1, keepdim=True)
            found.append(float(centred.square().mean().sqrt() / x.square().mean().sqrt().clamp_min(torch.finfo().tiny)))

    return keep
