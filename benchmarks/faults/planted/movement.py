"""Nothing moves, or it moves too far: rates, gradients, optimisers, precision."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ExponentialLR

from benchmarks.faults.bases.gpt import GPT_ADAMW, GPT_SGD
from benchmarks.faults.bases.hand import HAND_CAUSAL, HAND_CLOZE, HAND_PADDED, HAND_SERIES
from benchmarks.faults.bases.hugging_face import HF_GPT2, HF_MASKED, HF_ROWS, HF_VIT
from benchmarks.faults.bases.vit import VIT_DIGITS, VIT_MARK, VIT_MARKS, VIT_PLACE, VIT_SHADE
from benchmarks.faults.data.pictures import GREY
from benchmarks.faults.models.vit import ViT
from benchmarks.faults.planted.changes import (
    rate_times,
    with_batches,
    with_groups,
    with_modules,
    with_optimizer,
    with_step,
)
from benchmarks.faults.setup import Loss, Plan, Setup, Step

__all__ = ["PLANS"]


def decaying(steps: int) -> Callable[[Setup], Setup]:
    """The rate falls to zero within so many steps, as by a schedule for a shorter run."""

    def change(setup: Setup) -> Setup:
        first = [group["lr"] for group in setup.optimizer.param_groups]

        def after(done: int) -> None:
            for group, lr in zip(setup.optimizer.param_groups, first, strict=True):
                group["lr"] = lr * max(0.0, 1 - done / steps)

        return replace(setup, after=after)

    return change


def scheduled(loss: Loss, optimizer: Optimizer) -> Step:
    """A schedule that was meant for epochs advances with every batch."""
    scheduler = ExponentialLR(optimizer, gamma=0.7)

    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        scheduler.step()
        return value.detach()

    return step


def zeroed_late(loss: Loss, _optimizer: Optimizer) -> Step:
    """The gradients are zeroed between the backward pass and the step."""

    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.zero_grad()
        optimizer.step()
        return value.detach()

    return step


def clipped(limit: float) -> Callable[[Loss, Optimizer], Step]:
    def make(loss: Loss, _optimizer: Optimizer) -> Step:
        def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
            optimizer.zero_grad()
            value = loss(model, batch)
            value.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), limit)
            optimizer.step()
            return value.detach()

        return step

    return make


def clipped_values(loss: Loss, _optimizer: Optimizer) -> Step:
    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_value_(model.parameters(), 1e-6)
        optimizer.step()
        return value.detach()

    return step


def frozen_but(*trained: str) -> Callable[[Setup], Setup]:
    """Only parameters whose names begin so take gradients; all others keep their fresh weights."""

    def change(setup: Setup) -> Setup:
        for name, value in setup.model.named_parameters():
            value.requires_grad_(name.startswith(trained))
        return setup

    return change


def of_a_copy(model: nn.Module) -> list[Tensor]:
    """The optimiser was made before the model was copied."""
    return list(copy.deepcopy(model).parameters())


def only_biases(model: nn.Module) -> list[Tensor]:
    """Groups with and without weight decay, of which the first was forgotten."""
    return [value for name, value in model.named_parameters() if name.endswith("bias")]


def in_bfloat16(setup: Setup) -> Setup:
    """The weights themselves, not only the arithmetic."""
    setup.model.to(torch.bfloat16)
    return setup


def biased(where: str, value: float) -> Callable[[Setup], Setup]:
    """Every unit of a layer before ReLU begins far below zero."""

    def change(setup: Setup) -> Setup:
        bias = dict(setup.model.named_parameters())[where]
        with torch.no_grad():
            bias.fill_(value)
        return setup

    return change


def in_eval_mode(setup: Setup) -> Setup:
    """Left in evaluation mode before the first step."""
    setup.model.eval()
    return setup


def eval_in_step(loss: Loss, _optimizer: Optimizer) -> Step:
    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        model.eval()
        optimizer.zero_grad()
        value = loss(model, batch)
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return value.detach()

    return step


NORMALISED = {"values": GREY, "stem": "batch"}
"""Grey values that batch normalisation scales."""
SLOW = {"lr": 1.2e-4}
"""Steps that bf16 weights are too coarse for."""

PLANS = [
    Plan("lr_too_small", "zero", GPT_ADAMW, with_groups(lr=0.0), warm=40),
    Plan("lr_too_small", "÷ 1000", VIT_MARK, rate_times(1e-3), log="list"),
    Plan("lr_too_small", "÷ 1000", HAND_CAUSAL, rate_times(1e-3), warm=80),
    Plan("lr_too_small", "decayed to zero", HF_GPT2, decaying(8), warm=60, log="csv"),
    Plan("lr_too_small", "a schedule in the step", GPT_SGD, with_step(scheduled), warm=60),
    Plan("lr_too_large", "× 150", GPT_ADAMW, rate_times(150), warm=80, log="list"),
    Plan("lr_too_large", "× 150", VIT_PLACE, rate_times(150), warm=60),
    Plan("lr_too_large", "× 150", HAND_CAUSAL, rate_times(150), warm=60),
    Plan("lr_too_large", "× 30, to NaN", HAND_PADDED, rate_times(30), warm=60, log="csv"),
    Plan("lr_too_large", "× 100", HF_MASKED, rate_times(100), warm=70),
    Plan("not_in_optimizer", "only the head", GPT_ADAMW, with_optimizer(lambda model: _named(model, "head"))),
    Plan("not_in_optimizer", "of a copy", VIT_DIGITS, with_optimizer(of_a_copy), warm=50),
    Plan("not_in_optimizer", "blocks in a list", GPT_SGD, build={"listed": True}, warm=100),
    Plan("not_in_optimizer", "only biases", HF_VIT, with_optimizer(only_biases)),
    Plan("no_gradient", "frozen but for the norm", GPT_SGD, frozen_but("norm"), warm=50),
    Plan("no_gradient", "detached before the head", VIT_PLACE, with_modules(ViT, detached=True)),
    Plan("no_gradient", "zeroed before the step", HAND_CLOZE, with_step(zeroed_late)),
    Plan("no_gradient", "zeroed before the step", HF_ROWS, with_step(zeroed_late), warm=0),
    Plan(
        "no_gradient",
        "frozen but for the head",
        HF_GPT2,
        frozen_but("lm_head", "transformer.ln_f"),
        warm=90,
        build={"tie_word_embeddings": False},
    ),
    Plan("precision", "weights in bf16", GPT_ADAMW, in_bfloat16, build={"lr": 2e-4}, control={"lr": 2e-4}, steps=400, warm=100),
    Plan("precision", "weights in bf16", VIT_MARKS, in_bfloat16, build=SLOW, control=SLOW, steps=300, warm=80, log="list"),
    Plan("clip_too_tight", "norm 1e-4", GPT_SGD, with_step(clipped(1e-4)), log="list"),
    Plan("clip_too_tight", "norm 1e-3", VIT_MARK, with_step(clipped(1e-3)), warm=90),
    Plan("clip_too_tight", "values 1e-6", HAND_PADDED, with_step(clipped_values)),
    Plan("weight_decay_too_large", "30", GPT_ADAMW, with_groups(weight_decay=30.0)),
    Plan("weight_decay_too_large", "100", VIT_PLACE, with_groups(weight_decay=100.0), warm=80, log="csv"),
    Plan("weight_decay_too_large", "in SGD", HAND_PADDED, with_groups(weight_decay=3.0), warm=80),
    Plan("weight_decay_too_large", "60", HF_VIT, with_groups(weight_decay=60.0)),
    Plan("dropout_too_large", "0.95", GPT_ADAMW, build={"dropout": 0.95}, warm=80),
    Plan("dropout_too_large", "0.95", VIT_PLACE, build={"dropout": 0.95}, log="list"),
    Plan("dropout_too_large", "0.95", HF_MASKED, build={"dropout": 0.95}),
    Plan("dead_units", "stem", VIT_MARK, biased("stem.0.bias", -20.0)),
    Plan("dead_units", "head", GPT_ADAMW, biased("head.0.bias", -20.0), build={"hidden": True}, control={"hidden": True}),
    Plan(
        "dead_units", "head", HAND_SERIES, biased("head.0.bias", -15.0), build={"hidden": True}, control={"hidden": True}, warm=40
    ),
    Plan("norm_mode", "evaluation mode", VIT_PLACE, in_eval_mode, build=NORMALISED, control=NORMALISED),
    Plan("norm_mode", "evaluation mode in the step", HAND_SERIES, with_step(eval_in_step)),
    Plan("norm_mode", "batches of one", VIT_SHADE, with_batches(lambda batch: (batch[0][:1], batch[1][:1])), warm=100),
]


def _named(model: nn.Module, start: str) -> list[Tensor]:
    return [value for name, value in model.named_parameters() if name.startswith(start)]
