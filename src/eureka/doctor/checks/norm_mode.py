"""Do normalisation layers work as they should while training? Their modes, their statistics and the batch that they see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils._pytree import tree_leaves

from eureka.doctor.exam import SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.forks.case import Fork
from eureka.formats import listing, number, percent

APART = 1.0
"""Running statistics that are off by more than one spread of the batch are of no use."""


def check(exam: Exam) -> Iterator[Finding]:
    layers = {name: module for name, module in exam.case.model.named_modules() if isinstance(module, _BatchNorm)}
    if not layers or exam.well:
        return
    evaluated = [name for name in layers if exam.base.modes.get(name) is False and layers[name].track_running_stats]
    if evaluated:
        yield from _evaluated(exam, evaluated)
    else:
        yield from _single(exam, layers)


def _evaluated(exam: Exam, names: list[str]) -> Iterator[Finding]:
    """The running statistics are used in training, and are not those of the data."""
    apart, found = _apart(exam, names), exam.unlocks(_training)
    if found is None and apart < APART:
        return
    tried = f" In training mode the loss falls by {percent(found.share, 1)} in {SHORT} steps." if found else ""
    yield Finding(
        cause="norm_mode",
        sure=0.94,
        explains=0.96,
        evidence=(
            f"{listing(names[:3])} {'normalises by its' if len(names) == 1 else 'normalise by their'} running statistics while"
            " training (evaluation mode), and those are off by"
            f" {number(apart)} spreads of the batch.{tried}",
        ),
        advice="call model.train() before training, and after every evaluation.",
        code="model.train()",
        numbers={"apart": apart},
    )


def _apart(exam: Exam, names: list[str]) -> float:
    """How far the running means are from those of a batch, by its spread; or by what factor the spreads differ, less one."""
    found = [0.0]

    def keep(name: str, module: nn.Module, args: Any, _: Any) -> None:
        if name in names and isinstance(module, _BatchNorm) and module.running_mean is not None and args:
            values = args[0].detach().float().transpose(0, 1).flatten(1)
            centre, spread = values.mean(dim=1), values.std(dim=1).clamp_min(1e-12)
            running = module.running_var.float().sqrt().clamp_min(1e-12)  # type: ignore[union-attr]
            found.append(float(((centre - module.running_mean).abs() / spread).median()))
            found.append(float((spread / running).maximum(running / spread).median()) - 1.0)

    exam.observe(keep)
    return max(found)


def _single(exam: Exam, layers: dict[str, _BatchNorm]) -> Iterator[Finding]:
    """Statistics of one sample are no statistics."""
    given = tree_leaves((exam.view.inputs, dict(exam.view.keywords)))
    sizes = {len(one) for one in given if isinstance(one, Tensor) and one.dim() >= 2}
    if sizes and max(sizes) <= 2:
        yield Finding(
            cause="norm_mode",
            sure=0.95 if max(sizes) == 1 else 0.85,
            explains=0.97 if max(sizes) == 1 else 0.9,
            evidence=(f"Batches have {max(sizes)} sample(s), and {listing(list(layers)[:3])} normalises over the batch.",),
            advice="use larger batches, or GroupNorm or LayerNorm in place of BatchNorm.",
        )


def _training(fork: Fork) -> None:
    """Training mode in every forward pass."""

    def train(module: nn.Module, _: Any) -> None:
        for one in module.modules():
            one.training = True

    fork.model.register_forward_pre_hook(train)
