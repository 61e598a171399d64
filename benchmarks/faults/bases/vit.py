"""Transformers on small pictures."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.faults.bases.optimiser import BATCHES, optimiser
from benchmarks.faults.data.pictures import CENTRED, GREY, SIDE, TILE, Question, Values, digits, pictures
from benchmarks.faults.data.scores import scorer
from benchmarks.faults.models.vit import ViT
from benchmarks.faults.setup import Base, Draw, Setup


def class_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def yes_or_no_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(batch[0]).float(), batch[1])


def distance_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]).squeeze(-1), batch[1])


def _pictures(
    draw: Draw,
    question: Question,
    name: str,
    lr: float,
    marks: int = 3,
    size: int = 32,
    values: Values = CENTRED,
    **model: Any,
) -> Setup:
    task = pictures(question, draw.generator, marks, values)
    made = ViT(SIDE, TILE, task.answers, **model)
    batches = [task.sample(size, draw.generator) for _ in range(BATCHES)]
    losses = {"marks": yes_or_no_loss, "far": distance_loss}
    score = task.score(lambda model, shown: model(shown), draw.generator)
    return Setup(made, batches, losses.get(question, class_loss), optimiser(made, name, draw.near(lr)), score)


def place(draw: Draw, *, lr: float = 2e-3, **model: Any) -> Setup:
    """In which quarter is the first mark?"""
    return _pictures(draw, "place", "adamw", lr, **model)


def mark(draw: Draw, *, marks: int = 6, **model: Any) -> Setup:
    """Which mark is there? Its place does not matter."""
    return _pictures(draw, "mark", "sgd", 0.05, marks, draw.pick(32, 48), **{"class_token": False, "stem": "relu", **model})


def marks(draw: Draw, *, lr: float = 3e-3, **model: Any) -> Setup:
    """Which marks are there? A yes or no for each."""
    return _pictures(draw, "marks", "adamw", lr, 4, **{"class_token": False, **model})


def far(draw: Draw, **model: Any) -> Setup:
    """How far to the right is the first mark?"""
    return _pictures(draw, "far", "adamw", 2e-3, **model)


def shade(draw: Draw, **model: Any) -> Setup:
    """How bright is the picture? Grey values go through batch normalisation."""
    return _pictures(draw, "shade", "adamw", 2e-3, **{"values": GREY, "stem": "batch", "class_token": False, **model})


def real_digits(draw: Draw, *, train: int = 1400, classes: int = 10, divide: float = 8.0, **model: Any) -> Setup:
    """Real digits, several times over, from a shuffled DataLoader."""
    shown, answer = digits()
    shown, answer = shown[answer < classes] / divide - 1, answer[answer < classes]
    order = torch.randperm(len(shown), generator=draw.generator)
    shown, answer = shown[order], answer[order]
    train = min(train, int(0.8 * len(shown)))
    made = ViT(8, 2, classes, **{"dim": 40, **model})
    held_out = shown[train:], answer[train:]
    loader = DataLoader(
        TensorDataset(shown[:train], answer[:train]), 48, shuffle=True, generator=torch.Generator().manual_seed(1)
    )
    score = scorer(lambda model: model(held_out[0]).argmax(-1) == held_out[1], 1 / classes)
    return Setup(made, loader, class_loss, optimiser(made, "adamw", draw.near(3e-3)), score)


VIT_PLACE = Base("vit place", "vit", place, 180)
VIT_MARK = Base("vit mark sgd", "vit", mark)
VIT_MARKS = Base("vit marks", "vit", marks)
VIT_FAR = Base("vit far", "vit", far, 180)
VIT_SHADE = Base("vit shade", "vit", shade)
VIT_DIGITS = Base("vit digits", "vit", real_digits)
