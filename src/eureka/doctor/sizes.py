"""How large the numbers are that a model is given."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from eureka.doctor.changes import is_zeros_and_ones
from eureka.doctor.exam import Exam

USUAL = (0.05, 20.0)
"""Root mean squares of inputs that need no scaling."""
OFFSET = 20.0
"""A mean of more than so many spreads is unusual too."""


def model_inputs(exam: Exam) -> list[Tensor]:
    """What the model is given in the first batch, one row a sample, without masks, labels and places by their names."""
    named = {
        name: one for name, one in exam.view.keywords.items() if not any(part in name for part in ("mask", "label", "position"))
    }
    leaves = tree_leaves((exam.view.inputs, named))
    return [one for one in leaves if isinstance(one, Tensor) and one.dim() >= 2 and len(one) > 0 and one.dtype != torch.bool]


def float_inputs(exam: Exam) -> Tensor | None:
    """The first input of floats, if it is no mask."""
    floats = (one for one in model_inputs(exam) if one.is_floating_point() and not is_zeros_and_ones(one))
    main = next(floats, None)
    return None if main is None else main.detach().float()


def rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())


def is_usual(values: Tensor) -> bool:
    """Whether values need no scaling."""
    return USUAL[0] <= rms(values) <= USUAL[1] and abs(float(values.mean())) < OFFSET * (float(values.std()) or 1.0)
