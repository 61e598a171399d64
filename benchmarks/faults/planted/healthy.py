"""Runs that nothing is wrong with, some of which look as if: a doctor must leave them alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from benchmarks.faults.bases.gpt import GPT_ADAMW, GPT_LAST, GPT_PADDED, GPT_SGD
from benchmarks.faults.bases.hand import HAND_BUFFERS, HAND_CAUSAL, HAND_CLOZE, HAND_PADDED, HAND_SERIES
from benchmarks.faults.bases.hugging_face import HF_BUFFERS, HF_DECODER, HF_GPT2, HF_GPT2_PADDED, HF_MASKED, HF_ROWS, HF_VIT
from benchmarks.faults.bases.vit import VIT_DIGITS, VIT_FAR, VIT_MARK, VIT_MARKS, VIT_PLACE, VIT_SHADE
from benchmarks.faults.data.pictures import UNIT
from benchmarks.faults.models.gpt import CausalAttention
from benchmarks.faults.planted.changes import (
    with_groups,
    with_labels,
    with_loss,
    with_modules,
    with_optimizer,
    with_step,
)
from benchmarks.faults.planted.movement import clipped
from benchmarks.faults.setup import Loss, Plan, Setup, Step
from benchmarks.faults.training import train

__all__ = ["PLANS"]


def scheduled(factor: Callable[[int], float]) -> Callable[[Setup], Setup]:
    """The rate is multiplied by a function of the step."""

    def change(setup: Setup) -> Setup:
        first = [group["lr"] for group in setup.optimizer.param_groups]

        def after(done: int) -> None:
            for group, lr in zip(setup.optimizer.param_groups, first, strict=True):
                group["lr"] = lr * factor(done)

        after(0)
        return replace(setup, after=after)

    return change


def warm_up(step: int) -> float:
    return min(1.0, (1 + step) / 60)


def cosine(step: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * min(1.0, step / 130)))


def head_only(setup: Setup) -> Setup:
    """A trained model gets a new head, and only that is trained: frozen on purpose."""
    train(setup, 260)
    model: Any = setup.model
    for value in model.parameters():
        value.requires_grad_(False)
    head = "classifier" if hasattr(model, "classifier") else "head"
    old = getattr(model, head)
    setattr(model, head, nn.Linear(old.in_features, old.out_features))
    changed = with_optimizer(lambda model: [value for value in model.parameters() if value.requires_grad])(setup)
    return with_groups(lr=0.01)(changed)


def prompt_masked(labels: Tensor) -> Tensor:
    """The first third of a sequence is a prompt."""
    labels = labels.clone()
    labels[:, : labels.shape[1] // 3] = -100
    return labels


def in_autocast(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """bf16 arithmetic, fp32 weights."""
    with torch.autocast("cpu", torch.bfloat16):
        logits = model(batch[0])
    return F.cross_entropy(logits.float().flatten(0, -2), batch[1].flatten())


def smoothed(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1)


def log_softmax_first(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Needless, and harmless: the logarithm of a softmax is its own logarithm of a softmax."""
    return F.cross_entropy(model(batch[0]).log_softmax(-1).flatten(0, -2), batch[1].flatten())


def accumulating(loss: Loss, _optimizer: Optimizer) -> Step:
    """The gradient of a batch is summed over its halves."""

    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        optimizer.zero_grad()
        total = 0.0
        for half in zip(*(value.chunk(2) for value in batch), strict=True):
            value = loss(model, half) / 2
            value.backward()  # type: ignore[no-untyped-call]
            total += value.item()
        optimizer.step()
        return torch.tensor(total)

    return step


def every_second(loss: Loss, _optimizer: Optimizer) -> Step:
    """The weights move after every second batch."""
    calls = 0

    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        nonlocal calls
        calls += 1
        value = loss(model, batch)
        (value / 2).backward()  # type: ignore[no-untyped-call]
        if calls % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return value.detach()

    return step


def several_epochs(setup: Setup) -> Setup:
    """Few batches, several times over."""
    return replace(setup, batches=list(setup.batches)[:30])


PLANS = [
    Plan("healthy", "fresh", GPT_ADAMW, warm=0),
    Plan("healthy", "fresh", VIT_PLACE, warm=0),
    Plan("healthy", "fresh", HAND_CLOZE, warm=0),
    Plan("healthy", "fresh, dropout 0.1", HF_GPT2, build={"dropout": 0.1}, warm=0),
    Plan("healthy", "learning", GPT_ADAMW, warm=40, log="list"),
    Plan("healthy", "learning", HAND_CLOZE, warm=70),
    Plan("healthy", "learning", HF_MASKED, warm=60, log="csv"),
    Plan("healthy", "learning", HF_DECODER, warm=50),
    Plan("healthy", "learning", VIT_MARKS, warm=25),
    Plan("healthy", "batch normalisation", VIT_SHADE, warm=30),
    Plan("healthy", "batch normalisation, regression", HAND_SERIES, build={"regression": True}, warm=40),
    Plan("healthy", "waiting before it leaps", VIT_PLACE, warm=35, log="list"),
    Plan("healthy", "waiting before it leaps", HF_VIT, warm=25),
    Plan("healthy", "waiting before it leaps", VIT_FAR, warm=40),
    Plan("healthy", "at its floor", GPT_LAST, warm=150, log="list"),
    Plan("healthy", "at its floor", VIT_MARK, warm=150),
    Plan("healthy", "at its floor", HAND_CAUSAL, warm=250, steps=250, log="csv"),
    Plan("healthy", "dropout 0.1", GPT_ADAMW, build={"dropout": 0.1}, warm=60),
    Plan("healthy", "weight decay 0.1", VIT_PLACE, with_groups(weight_decay=0.1), warm=90),
    Plan("healthy", "clipped at 1", GPT_SGD, with_step(clipped(1.0)), warm=50),
    Plan("healthy", "warm-up", HF_GPT2, scheduled(warm_up), warm=12, log="list"),
    Plan("healthy", "cosine near its end", VIT_DIGITS, scheduled(cosine), warm=120, steps=130),
    Plan("healthy", "only a new head is trained", VIT_PLACE, head_only, warm=30),
    Plan("healthy", "only a new head is trained", HF_VIT, head_only, warm=30),
    Plan("healthy", "prompt is no label", GPT_ADAMW, with_labels(prompt_masked), warm=50),
    Plan("healthy", "prompt is no label", HF_GPT2, with_labels(prompt_masked), warm=30),
    Plan("healthy", "padding is masked", HAND_PADDED, warm=30),
    Plan("healthy", "padding is masked", HF_ROWS, warm=30),
    Plan("healthy", "stale tokens are masked", HAND_BUFFERS, warm=40),
    Plan("healthy", "stale tokens are masked", HF_BUFFERS, warm=50),
    Plan("healthy", "constant padding that the model sees", GPT_PADDED, build={"pad": None}, also=("padding_used",), warm=80),
    Plan("healthy", "padding is masked", GPT_PADDED, warm=50),
    Plan("healthy", "padding is no label", HF_GPT2_PADDED, warm=40),
    Plan("healthy", "sliding window", GPT_SGD, with_modules(CausalAttention, window=4), warm=60),
    Plan("healthy", "no positions, none needed", GPT_LAST, build={"positions": False}, warm=25),
    Plan("healthy", "no positions, none needed", VIT_MARK, build={"positions": False}, warm=40),
    Plan("healthy", "few pictures, several epochs", VIT_DIGITS, warm=110),
    Plan("healthy", "few batches, several epochs", GPT_SGD, several_epochs, warm=100, log="list"),
    Plan("healthy", "bf16 arithmetic", GPT_ADAMW, with_loss(in_autocast), warm=50),
    Plan("healthy", "halves of a batch", GPT_SGD, with_step(accumulating), warm=60),
    Plan("healthy", "every second batch", HAND_CAUSAL, with_step(every_second), warm=81, steps=240),
    Plan("healthy", "label smoothing", VIT_PLACE, with_loss(smoothed), warm=80),
    Plan("healthy", "log-softmax before cross-entropy", HAND_CAUSAL, with_loss(log_softmax_first), warm=60),
    Plan("healthy", "tied embeddings", GPT_ADAMW, build={"tied": True}, warm=60),
    Plan("healthy", "pictures from 0 to 1", VIT_PLACE, build={"values": UNIT}, warm=80, steps=250),
    Plan("healthy", "normalised after each part", HAND_CLOZE, build={"post": True}, warm=60),
]
