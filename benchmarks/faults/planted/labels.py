"""What is asked is not what should be learned: labels and losses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.faults.bases.gpt import GPT_ADAMW, GPT_PADDED, GPT_SGD, PADDING
from benchmarks.faults.bases.hand import HAND_CAUSAL, HAND_PADDED, HAND_SERIES
from benchmarks.faults.bases.hugging_face import HF_GPT2, HF_GPT2_PADDED, HF_ROWS
from benchmarks.faults.bases.vit import VIT_DIGITS, VIT_FAR, VIT_MARKS, VIT_PLACE
from benchmarks.faults.data.masked import IGNORED
from benchmarks.faults.planted.changes import with_batches, with_labels, with_loss
from benchmarks.faults.setup import Plan, Setup

__all__ = ["PLANS"]


def shuffled(labels: Tensor) -> Tensor:
    """The labels of a batch in another order."""
    return labels[torch.randperm(len(labels))]


def of_the_next_batch(setup: Setup) -> Setup:
    """Inputs and labels come from two loaders, of which one is a batch ahead."""
    batches: list[Any] = list(setup.batches)
    pairs = zip(batches, batches[1:] + batches[:1], strict=True)
    return replace(setup, batches=[(mine[0], other[1]) for mine, other in pairs])


def shifted(labels: Tensor) -> Tensor:
    """One more place to the left."""
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], 1)


def shifted_right(labels: Tensor) -> Tensor:
    return torch.cat([torch.full_like(labels[:, :1], IGNORED), labels[:, :-1]], 1)


def ignores_zero(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], ignore_index=0)


def only_padding(batch: Any) -> Any:
    """The mask of the labels is inverted."""
    if isinstance(batch, dict):
        tokens = batch["input_ids"]
        return {**batch, "labels": tokens.masked_fill(batch["attention_mask"].bool(), IGNORED)}
    tokens, labels = batch
    return tokens, torch.where(tokens == PADDING, torch.full_like(labels, PADDING), IGNORED)


def softmax_first(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    logits: Tensor = model(batch[0])
    return F.cross_entropy(logits.softmax(-1).flatten(0, -2), batch[1].flatten())


def sigmoid_in_the_model(setup: Setup) -> Setup:
    """The loss takes logits and gets probabilities: none of its own is then below one half."""
    model: Any = setup.model
    model.head = nn.Sequential(model.head, nn.Sigmoid())
    return setup


def column_against_row(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """(b, 1) minus (b,) is (b, b)."""
    out: Tensor = model(batch[0])
    return ((out - batch[1]) ** 2).mean()


MANY = {"vocabulary": 64, "lr": 0.1}
"""The more classes, the less gradient gets through two softmaxes."""

PLANS = [
    Plan("labels_unrelated", "shuffled", VIT_PLACE, with_labels(shuffled)),
    Plan("labels_unrelated", "of the next batch", GPT_ADAMW, of_the_next_batch, warm=80),
    Plan("labels_unrelated", "of the next batch", HAND_CAUSAL, of_the_next_batch, log="list"),
    Plan("labels_unrelated", "shuffled", HF_ROWS, with_labels(shuffled), warm=50),
    Plan("labels_misaligned", "shifted twice", GPT_ADAMW, with_labels(shifted)),
    Plan("labels_misaligned", "not shifted", HAND_CAUSAL, with_batches(lambda batch: (batch[0], batch[0])), warm=80),
    Plan("labels_misaligned", "shifted twice", HF_GPT2, with_labels(shifted), log="csv"),
    Plan("labels_misaligned", "not shifted", HF_GPT2, with_labels(shifted_right), warm=50),
    Plan("labels_ignored", "only padding counts", GPT_PADDED, with_batches(only_padding)),
    Plan("labels_ignored", "class 0 of 2", HAND_PADDED, with_loss(ignores_zero)),
    Plan(
        "labels_ignored",
        "class 0 of 2",
        VIT_DIGITS,
        with_loss(ignores_zero),
        build={"classes": 2},
        control={"classes": 2},
        warm=40,
    ),
    Plan("labels_ignored", "only padding counts", HF_GPT2_PADDED, with_batches(only_padding), warm=70),
    Plan(
        "loss_misuse", "softmax before cross-entropy", GPT_SGD, with_loss(softmax_first), MANY, control=MANY, steps=200, warm=80
    ),
    Plan("loss_misuse", "sigmoid before BCE with logits", VIT_MARKS, sigmoid_in_the_model),
    Plan("loss_misuse", "a column against a row", VIT_FAR, with_loss(column_against_row)),
    Plan(
        "loss_misuse",
        "a column against a row",
        HAND_SERIES,
        with_loss(column_against_row),
        build={"regression": True},
        control={"regression": True},
    ),
]
