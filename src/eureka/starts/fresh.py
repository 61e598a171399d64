"""Tell a model that was trained from a fresh one."""

from __future__ import annotations

from torch import nn

from eureka.formats import number
from eureka.probes.norms import NORM


def sign_of_training(model: nn.Module) -> str | None:
    """A normalisation layer with a vector that differs between features, as weight or bias; None if there is none.

    Libraries make these constant (weight 1 or 0, bias 0), and a step of an optimiser makes them differ. It misses a trained
    model without normalisation layers, with norms that have no parameters, or with norms that were frozen.
    """
    for name, module in model.named_modules():
        if not NORM.search(type(module).__name__):
            continue
        for key, value in module.named_parameters(recurse=False):
            if value.dim() != 1:
                continue
            low, high = value.min().item(), value.max().item()
            if low != high:
                return f"the {key} of {name or type(module).__name__} goes from {number(low)} to {number(high)}"
    return None
