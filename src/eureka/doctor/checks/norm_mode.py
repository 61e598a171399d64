"""Do normalisation layers work as they should while training? Their modes and the batch that they see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from eureka.doctor.exam import SHORT, Exam
from eureka.doctor.finding import Finding
from eureka.forks.case import Fork
from eureka.formats import listing, percent


def check(exam: Exam) -> Iterator[Finding]:
    batch_norms = {
        name: module for name, module in exam.case.model.named_modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)
    }
    if not batch_norms or exam.learning:
        return
    evaluated = [name for name in batch_norms if exam.base.modes.get(name) is False and batch_norms[name].track_running_stats]
    if evaluated:
        found = exam.unlocks(_training)
        if found is not None:
            yield Finding(
                cause="norm_mode",
                sure=0.94,
                explains=0.95,
                evidence=(
                    f"{listing(evaluated[:3])} normalises by its running statistics while training (evaluation mode); in training mode"
                    f" the loss falls by {percent(found.share, 1)} in {SHORT} steps, so by {percent(max(exam.progress.share, 0.0), 1)}.",
                ),
                advice="call model.train() before training, and after every evaluation.",
                code="model.train()",
            )
        return
    yield from _single(exam, batch_norms)


def _single(exam: Exam, batch_norms: dict[str, nn.modules.batchnorm._BatchNorm]) -> Iterator[Finding]:
    """Statistics of one sample are no statistics."""
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    sizes = {len(one) for one in tree_leaves(exam.view.inputs) if isinstance(one, Tensor) and one.dim() >= 2}
    if sizes and max(sizes) <= 2:
        yield Finding(
            cause="norm_mode",
            sure=0.85,
            explains=0.9,
            evidence=(f"Batches have {max(sizes)} sample(s), and {listing(list(batch_norms)[:3])} normalises over the batch.",),
            advice="use larger batches, or GroupNorm or LayerNorm in place of BatchNorm.",
        )


def _training(fork: Fork) -> None:
    """Training mode in every forward pass."""

    def train(module: nn.Module, _: Any) -> None:
        for one in module.modules():
            one.training = True

    fork.model.register_forward_pre_hook(train)
