"""What every operator asks of its inputs, checked once and in one place."""

from __future__ import annotations

import torch
from torch import Tensor

from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, Mask, NoMask, as_mask
from eureka.errors import RequestError


def checked(q: Tensor, k: Tensor, v: Tensor | None, mask: Mask | Tensor | None) -> Mask:
    """The mask as one of its kinds, once q (B, H, Q, D), k and v (B, Hk, K, D) and the mask are known to fit."""
    _check_shapes(q, k, v)
    kind = as_mask(mask)
    if isinstance(kind, (NoMask, Causal)):
        return kind
    shape = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    if isinstance(kind, KeyPadding):
        _check_padding(kind.visible, shape)
        return kind
    tensor = kind.visible if isinstance(kind, Dense) else kind.bias
    _check_type(kind, tensor)
    if tensor.dim() > 4 or any(m not in (1, n) for m, n in zip(reversed(tensor.shape), reversed(shape), strict=False)):
        raise RequestError(f"a mask of shape {tuple(tensor.shape)} does not broadcast to (B, H, Q, K) = {shape}.")
    tensor = tensor.reshape((1,) * (4 - tensor.dim()) + tuple(tensor.shape)).expand(-1, -1, -1, shape[3])  # SDPA asks for both
    if isinstance(kind, Bias):
        return Bias(tensor)
    if tensor.shape[1] == tensor.shape[2] == 1:
        return KeyPadding(tensor[:, 0, 0])  # the same keys for every query: the cheap statistics apply
    return Dense(tensor)


def _check_shapes(q: Tensor, k: Tensor, v: Tensor | None) -> None:
    if q.dim() != 4 or k.dim() != 4:
        raise RequestError(f"q and k have four dimensions (B, H, N, D), not {tuple(q.shape)} and {tuple(k.shape)}.")
    (b, h, queries, d), (bk, hk, keys, dk) = q.shape, k.shape
    if queries == 0 or keys == 0:
        raise RequestError(f"attention needs at least one query and one key, not {queries} and {keys}.")
    if b != bk or d != dk:
        raise RequestError(f"q {tuple(q.shape)} and k {tuple(k.shape)} must agree in batch and head dimension.")
    if h % hk:
        raise RequestError(f"the number of key heads must divide the number of query heads; {hk} does not divide {h}.")
    if v is not None and v.shape[:-1] != k.shape[:-1]:
        raise RequestError(f"k {tuple(k.shape)} and v {tuple(v.shape)} must agree in batch, heads and length.")


def _check_padding(visible: Tensor, shape: tuple[int, int, int, int]) -> None:
    batch, _, _, keys = shape
    if visible.dtype != torch.bool:
        raise RequestError(f"key padding is boolean (True = visible), not {visible.dtype}.")
    if visible.dim() != 2 or visible.shape[0] not in (1, batch) or visible.shape[1] != keys:
        raise RequestError(f"key padding of shape {tuple(visible.shape)} does not fit (B, K) = {(batch, keys)}.")


def _check_type(kind: Dense | Bias, tensor: Tensor) -> None:
    if isinstance(kind, Dense) and tensor.dtype != torch.bool:
        raise RequestError(f"a dense mask is boolean (True = visible), not {tensor.dtype}; pass numbers as a Bias.")
    if isinstance(kind, Bias) and not tensor.dtype.is_floating_point:
        raise RequestError(f"a bias holds floating-point numbers, not {tensor.dtype}.")
