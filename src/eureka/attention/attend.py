"""Attention in one call, for code that writes the softmax out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from eureka.attention.mask import Causal
from eureka.attention.operator import Operator, make_operator
from eureka.errors import RequestError


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    operator: str | Operator = "norm_softmax",
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    settings: Mapping[str, Any] | None = None,
) -> Tensor:
    """softmax(q kᵀ / √d) v, or what another operator makes of it; call it in place of your own lines.

    Args:
        q: (batch, heads, tokens, width), or (batch, tokens, width) for one head
        k: like `q`
        v: like `q`
        operator: a name that `eureka fixes` lists and that has no parameters of its own, or an operator that your model holds
        mask: True where a key may be seen, or numbers that are added to the logits; as in F.scaled_dot_product_attention
        causal: each token sees itself and those before it

    >>> import torch
    >>> q, k, v = torch.randn(3, 2, 4, 5, 8)
    >>> by_hand = torch.softmax(q @ k.transpose(-1, -2) / 8**0.5, dim=-1) @ v
    >>> torch.allclose(attend(q, k, v, "softmax"), by_hand, atol=1e-6)
    True
    """
    if causal and mask is not None:
        raise RequestError("mask and causal=True exclude each other; put both into the mask.")
    made = operator if isinstance(operator, Operator) else make_operator(operator, settings, head_dim=q.shape[-1])
    if made is not operator and next(made.parameters(), None) is not None:
        raise RequestError(
            f"{operator} has parameters of its own; make it once (eureka.make_operator), keep it in your model, pass it."
        )
    single = q.dim() == 3
    q, k, v = (one.unsqueeze(1) if single else one for one in (q, k, v))
    mixed: Tensor = made(q, k, v, Causal() if causal else mask, dropout)
    return mixed.squeeze(1) if single else mixed
