"""torch.nn.MultiheadAttention with an operator in the middle."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, Mask, NoMask
from eureka.attention.operator import Operator
from eureka.errors import RequestError
from eureka.patching.masks import is_empty
from eureka.patching.sdpa import inside_operator
from eureka.patching.selfcheck import PLAIN, due, verify
from eureka.patching.slot import SUBMODULE, observe


class MultiheadSite(nn.MultiheadAttention):
    """MultiheadAttention whose fast path is off and whose softmax is the operator of its slot."""

    def forward(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        call = MultiheadCall(*args, **kwargs)
        operator: Operator | None = getattr(self, SUBMODULE, None)
        if call.query.is_nested:
            raise RequestError("a patched MultiheadAttention takes padded tensors, not nested ones.")
        if not call.fits(self):
            super().forward(*args, **kwargs)  # raises what torch raises
            raise RequestError("a patched MultiheadAttention does not understand these masks.")
        if is_empty(call.query, call.key):
            return super().forward(*args, **kwargs)
        q, k, v, mask = call.parts(self)
        observe(self, SUBMODULE, q, k, v, mask, operator)
        if operator is None:  # only observed
            return super().forward(*args, **kwargs)
        if due(self, SUBMODULE) is not None:
            plain = partial(super().forward, *args, **kwargs)
            verify(
                self, SUBMODULE, partial(self._without_dropout, plain), lambda: self._mixed(PLAIN, call, q, k, v, mask, 0.0)[0]
            )
        with contextlib.nullcontext() if torch.compiler.is_compiling() else inside_operator():
            return self._mixed(operator, call, q, k, v, mask, self.dropout if self.training else 0.0)

    def _mixed(
        self, operator: Operator, call: MultiheadCall, q: Tensor, k: Tensor, v: Tensor, mask: Mask, dropout: float
    ) -> tuple[Tensor, Tensor | None]:
        weights: Tensor | None = None
        if call.need_weights:
            mixed, weights = operator.with_weights(q, k, v, mask, dropout)
        else:
            mixed = operator(q, k, v, mask, dropout)
        out = F.linear(mixed.transpose(1, 2).flatten(2), self.out_proj.weight, self.out_proj.bias)
        if weights is not None and call.average_attn_weights:
            weights = weights.mean(dim=1)
        return call.shaped(self, out, weights)

    def _without_dropout(self, plain: Callable[[], tuple[Tensor, Tensor | None]]) -> Tensor:
        dropout, self.dropout = self.dropout, 0.0
        try:
            return plain()[0]
        finally:
            self.dropout = dropout


class MultiheadCall(NamedTuple):
    """The arguments of one call, in the order of MultiheadAttention."""

    query: Tensor
    key: Tensor
    value: Tensor
    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    def fits(self, module: nn.MultiheadAttention) -> bool:
        """Whether inputs and masks have the shapes and types that torch asks for."""
        dims = self.query.dim()
        if dims not in (2, 3) or self.key.dim() != dims or self.value.dim() != dims or self.query.shape[-1] != module.embed_dim:
            return False
        if (
            self.key.shape[-1] != module.kdim
            or self.value.shape[-1] != module.vdim
            or self.key.shape[:-1] != self.value.shape[:-1]
        ):
            return False
        q, k, _ = self._batch_first(module)
        (batch, queries), keys = q.shape[:2], k.shape[1]
        if k.shape[0] != batch or (self.is_causal and self.attn_mask is None):
            return False
        padding, mask = self.key_padding_mask, self.attn_mask
        if padding is not None and (padding.shape != ((batch, keys) if dims == 3 else (keys,)) or not _is_mask(padding)):
            return False
        shapes = ((queries, keys), (batch * module.num_heads, queries, keys))
        return mask is None or (mask.shape in shapes and _is_mask(mask))

    def parts(self, module: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor, Mask]:
        """q (B, H, Q, D), k and v (B, H, K, D) and the mask."""
        q, k, v = _project(module, *self._batch_first(module))
        extra = 0
        if module.bias_k is not None and module.bias_v is not None:
            k, v, extra = _append(k, module.bias_k), _append(v, module.bias_v), extra + 1
        if module.add_zero_attn:
            k, v, extra = F.pad(k, (0, 0, 0, 1)), F.pad(v, (0, 0, 0, 1)), extra + 1
        q, k, v = (x.reshape(*x.shape[:2], module.num_heads, -1).transpose(1, 2) for x in (q, k, v))
        return q, k, v, self._mask(module.num_heads, q, extra)

    def shaped(self, module: nn.MultiheadAttention, out: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The outputs in the layout of the inputs, without a batch if there was none."""
        if self.query.dim() == 2:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return (out if module.batch_first else out.transpose(0, 1)), weights

    def _batch_first(self, module: nn.MultiheadAttention) -> tuple[Tensor, Tensor, Tensor]:
        """The inputs as (B, N, E); if they are one object, so are the results."""
        unbatched = self.query.dim() == 2

        def turned(x: Tensor) -> Tensor:
            return x.unsqueeze(0) if unbatched else x if module.batch_first else x.transpose(0, 1)

        query = turned(self.query)
        key = query if self.key is self.query else turned(self.key)
        return query, key, key if self.value is self.key else turned(self.value)

    def _mask(self, heads: int, q: Tensor, extra: int) -> Mask:
        """True means hidden in MultiheadAttention, and added keys are always visible."""
        padding, mask = self.key_padding_mask, self.attn_mask
        if self.is_causal and padding is None and not extra and not self.need_weights:
            return Causal()  # what MultiheadAttention itself makes of the hint
        if padding is not None and mask is None and padding.dtype == torch.bool:
            return KeyPadding(F.pad(~padding.reshape(-1, padding.shape[-1]), (0, extra), value=True))
        terms = []
        if padding is not None:
            terms.append(padding.reshape(-1, 1, 1, padding.shape[-1]))
        if mask is not None:
            terms.append(mask.reshape(-1, heads, *mask.shape[1:]) if mask.dim() == 3 else mask[None, None])
        if not terms:
            return NoMask()
        if all(term.dtype == torch.bool for term in terms):
            hidden = terms[0] if len(terms) == 1 else terms[0] | terms[1]
            return Dense(F.pad(~hidden, (0, extra), value=True))
        bias = functools.reduce(torch.add, (_as_bias(term, q) for term in terms))
        return Bias(F.pad(bias, (0, extra)))


def _as_bias(mask: Tensor, q: Tensor) -> Tensor:
    zero = torch.zeros((), dtype=q.dtype, device=q.device)
    if mask.dtype == torch.bool:
        return zero.masked_fill(mask, float("-inf"))
    return mask.to(q.dtype)


def _is_mask(mask: Tensor) -> bool:
    return mask.dtype == torch.bool or mask.is_floating_point()


def _project(module: nn.MultiheadAttention, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if module._qkv_same_embed_dim and query is key is value:
        q, k, v = F.linear(query, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
        return q, k, v
    if module._qkv_same_embed_dim:
        weights = module.in_proj_weight.chunk(3)
    else:
        weights = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    biases = (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    q, k, v = (F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True))
    return q, k, v


def _append(x: Tensor, token: Tensor) -> Tensor:
    """One more key, the same for every sample: (B, K, E), (1, 1, E) → (B, K + 1, E)."""
    return torch.cat([x, token.expand(len(x), 1, -1)], dim=1)
