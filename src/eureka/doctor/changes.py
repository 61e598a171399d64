"""Changes of a fork that trials try: another rate, no decay, no dropout, fresh weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from eureka.forks.case import Fork
from eureka.forks.trial import Change


def rate_times(factor: float) -> Change:
    """Every learning rate times a factor."""

    def change(fork: Fork) -> None:
        for group in fork.optimizer.param_groups:
            group["lr"] = group["lr"] * factor

    return change


def rate_of(rate: float) -> Change:
    """One learning rate for all."""

    def change(fork: Fork) -> None:
        for group in fork.optimizer.param_groups:
            group["lr"] = rate

    return change


def no_decay(fork: Fork) -> None:
    """No weight decay."""
    for group in fork.optimizer.param_groups:
        group["weight_decay"] = 0.0


def no_dropout(fork: Fork) -> None:
    """No dropout in any module, nor as the setting of one (`nn.MultiheadAttention`, Hugging Face)."""
    for module in fork.model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0  # type: ignore[assignment]
        for name in ("attention_dropout", "dropout_p", "attn_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def fresh(fork: Fork) -> None:
    """New weights as each layer draws them, and an optimiser that remembers nothing; a weight of no layer becomes small noise."""
    initialise = getattr(fork.model, "_init_weights", None)
    with torch.no_grad():
        for module in fork.model.modules():
            reset: Any = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            if callable(reset):
                reset()
            else:
                for own in module.parameters(recurse=False):
                    own.normal_(0.0, 0.02) if own.dim() > 1 else own.nan_to_num_(1.0)
            if callable(initialise):  # Hugging Face's
                initialise(module)
    fork.optimizer.state.clear()


def in_single_precision(fork: Fork) -> None:
    """The weights in float32."""
    fork.model.float()


def both(*changes: Change) -> Change:
    """One after the other."""

    def change(fork: Fork) -> None:
        for each in changes:
            each(fork)

    return change
