"""Softmax that stays as sharp as it is, however many keys there are."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from eureka.attention.mask import Mask, visible_counts
from eureka.attention.operator import SoftmaxFamily


class LogLength(SoftmaxFamily):
    """β = log n / (log length · √d), with n the number of keys that a query sees: plain softmax where n is `length`."""

    def __init__(self, *, length: Annotated[int, Field(ge=2)] = 16) -> None:
        super().__init__()
        self.length = length

    def beta(self, q: Tensor, k: Tensor, mask: Mask) -> Tensor:
        n = torch.as_tensor(visible_counts(mask, q.shape[2], k.shape[2], q.device))
        return n.clamp_min(1).to(q.dtype).log() / (math.log(self.length) * q.shape[-1] ** 0.5)
