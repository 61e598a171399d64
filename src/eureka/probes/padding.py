"""Which tokens of a batch are real and which are padding: what the inputs say by `attention_mask`, as Hugging Face names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Padding:
    """The masks of a batch, (samples, tokens) and true for real tokens; None where there is none, or where it hides nothing."""

    own: Tensor | None = None
    decoder: Tensor | None = None
    """That of a decoder which embeds tokens of its own."""

    def real(self, x: Tensor, of_decoder: bool) -> Tensor | None:
        """The mask that says which tokens of x (samples, tokens, features) are real; None if all are, or if none fits."""
        mask = self.decoder if of_decoder else self.own
        return mask.to(x.device) if mask is not None and x.dim() == 3 and x.shape[:2] == mask.shape else None


def padding_of(inputs: Any) -> Padding:
    """What the inputs of a model say about padding; nothing unless they are given by keyword."""
    if not isinstance(inputs, Mapping):
        return Padding()
    return Padding(_mask(inputs.get("attention_mask")), _mask(inputs.get("decoder_attention_mask")))


def _mask(given: Any) -> Tensor | None:
    if not isinstance(given, Tensor) or given.dim() != 2 or given.is_complex():
        return None
    real = given > 0
    return real if real.any() and not real.all() else None
