"""What some models do to their logits beside a bias: a soft cap (Gemma 2), attention sinks (GPT-OSS)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from eureka.attention.explicit import shown
from eureka.attention.mask import Mask


@dataclass(frozen=True, eq=False)
class Extras:
    """A soft cap c, by which a logit a becomes c·tanh(a / c), and sinks: for each head a logit without a value."""

    softcap: float | None = None
    sinks: Tensor | None = None
    """(H,)"""

    @property
    def name(self) -> str:
        return "attention sinks" if self.softcap is None else "soft cap on the logits"

    def capped(self, logits: Tensor) -> Tensor:
        return logits if self.softcap is None else torch.tanh(logits / self.softcap) * self.softcap

    def sunk(self, logits: Tensor, mask: Mask) -> Tensor:
        """softmax over the visible keys and the sink, without the sink."""
        assert self.sinks is not None
        rest = shown(logits, mask)
        logits = logits if rest is None else logits + rest.added
        sink = self.sinks.to(logits.dtype).reshape(1, -1, 1, 1).expand(logits.shape[0], -1, logits.shape[2], 1)
        return torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]
