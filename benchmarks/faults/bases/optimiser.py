"""Optimisers by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

BATCHES = 256
"""Batches of a run: more than it is trained on before it is handed over, so that a healthy run has not seen a sample twice."""


def optimiser(model: nn.Module, name: str, lr: float, **more: Any) -> Optimizer:
    """``adamw``, or ``sgd`` with momentum."""
    if name == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=lr, **{"weight_decay": 0.01, **more})
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, **more)
