"""Changes of a fork that trials try: another rate, no decay, no dropout, fresh weights."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from eureka.forks.case import Fork
from eureka.forks.trial import Change

DROPOUTS = ("dropout", "attention_dropout", "dropout_p", "attn_dropout")
"""Settings of modules that drop out themselves."""


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
        for name in DROPOUTS:
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def fresh(fork: Fork) -> None:
    """New weights as each layer draws them, or noise of their size where no layer does; the optimiser remembers nothing."""
    initialise = getattr(fork.model, "_init_weights", None)
    with torch.no_grad():
        for module in fork.model.modules():
            reset: Any = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            if callable(reset):
                reset()
            else:
                for own in module.parameters(recurse=False):
                    own.normal_(0.0, _usual_size(own)) if own.dim() > 1 else own.nan_to_num_(1.0)
            if callable(initialise):  # Hugging Face's
                initialise(module)
    fork.optimizer.state.clear()


def _usual_size(weight: Tensor) -> float:
    """The root mean square of a weight; that of a small initialisation where training has blown it up."""
    size = float(weight.detach().float().square().mean().sqrt())
    return size if size <= 1.0 else 0.02


def frozen_kept(change: Change) -> Change:
    """The same change, but parameters that are frozen stay as they are."""

    def changed(fork: Fork) -> None:
        frozen = {one: one.detach().clone() for one in fork.model.parameters() if not one.requires_grad}
        change(fork)
        with torch.no_grad():
            for parameter, value in frozen.items():
                parameter.copy_(value)

    return changed


def standard(one: Any) -> Any:
    """A tensor of floats with mean 0 and spread 1; zeros and ones, and what is no such tensor, stay as they are."""
    if not isinstance(one, Tensor) or not one.is_floating_point() or one.dim() < 2 or is_zeros_and_ones(one):
        return one
    return (one - one.mean()) / (one.std() + 1e-12)


def is_zeros_and_ones(one: Tensor) -> bool:
    return bool(((one == 0) | (one == 1)).all())


def in_single_precision(fork: Fork) -> None:
    """The weights in float32."""
    fork.model.float()


def both(*changes: Change) -> Change:
    """One after the other."""

    def change(fork: Fork) -> None:
        for each in changes:
            each(fork)

    return change
