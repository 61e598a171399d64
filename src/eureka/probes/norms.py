"""Normalisation layers, known by the names of their classes."""

from __future__ import annotations

import re

from torch import nn

NORM = re.compile(r"(?<!batch)norm(\dd)?$", re.IGNORECASE)
"""Classes of normalisation layers: LayerNorm, LlamaRMSNorm, GroupNorm. Batch norms are left out: transformers draws those of
MobileViT."""


def norm_parameters(model: nn.Module) -> frozenset[str]:
    """The names of the parameters of all normalisation layers.

    >>> sorted(norm_parameters(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))))
    ['1.bias', '1.weight']
    """
    norms = [(name, module) for name, module in model.named_modules() if NORM.search(type(module).__name__)]
    return frozenset(f"{name}.{key}" if name else key for name, module in norms for key in module._parameters)
