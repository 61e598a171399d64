"""Rows in which something vanishes or explodes: values and gradients stay finite, and are what they should be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from eureka.attention.mask import Bias, Causal, Dense, KeyPadding
from eureka.attention.registry import FIXES

SIZES = {"short": (6, 6, 4), "long": (70, 70, 4)}  # (Q, K, D): the two paths of NormSoftmax
NORM = ["norm_softmax", "norm_softmax_var"]


def one_key(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Any]:
    visible = torch.zeros(k.shape[0], k.shape[2], dtype=torch.bool)
    visible[:, 2] = True
    return q, k, KeyPadding(visible)


def nothing_visible(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Any]:
    visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    visible[1] = False
    return q, k, Dense(visible)


def nothing_visible_by_bias(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Any]:
    bias = torch.zeros(q.shape[2], k.shape[2], dtype=q.dtype)
    bias[1] = -math.inf
    return q, k, Bias(bias)


CASES: dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Any]]] = {
    "one visible key": one_key,
    "first causal row": lambda q, k: (q, k, Causal()),
    "identical keys": lambda q, k: (q, k[:, :, :1].expand_as(k) * 3 + 7, None),
    "identical keys under a causal mask": lambda q, k: (q, k[:, :, :1].expand_as(k) * 3 + 7, Causal()),
    "zero queries": lambda q, k: (torch.zeros_like(q), k, None),
    "zero keys": lambda q, k: (q, torch.zeros_like(k), None),
    "tiny queries": lambda q, k: (q * 1e-20, k, None),
    "logits of 1e4": lambda q, k: (q * 100, k * 100, Causal()),
    "a fully masked row": nothing_visible,
    "a row fully masked by its bias": nothing_visible_by_bias,
}


def make(size: str, case: str, dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], Any]:
    queries, keys, d = SIZES[size]
    g = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 2, n, d, generator=g).to(dtype) for n in (queries, keys, keys))
    q, k, mask = CASES[case](q, k)
    return [x.clone().requires_grad_() for x in (q, k, v)], mask


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", FIXES.names())
def test_values_and_gradients_are_finite(twin: Any, name: str, case: str, size: str) -> None:
    tensors, mask = make(size, case)
    operator = twin.make(name, 2, 4, dtype=torch.float32)
    for x in twin.answer(lambda q, k, v: operator(q, k, v, mask), tensors, list(operator.parameters())):
        assert x.isfinite().all()


@pytest.mark.parametrize("case", ["a fully masked row", "a row fully masked by its bias"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FIXES.names())
def test_a_row_that_sees_nothing_is_zero_and_sends_no_gradient(twin: Any, name: str, size: str, case: str) -> None:
    tensors, mask = make(size, case)
    operator = twin.make(name, 2, 4, dtype=torch.float32)
    out = operator(*tensors, mask)
    assert (out[:, :, 1] == 0).all()
    assert (operator.weights(*tensors[:2], mask)[:, :, 1] == 0).all()
    out[:, :, 1].sum().backward()
    assert all(x.grad is not None and not x.grad.any() for x in tensors)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("cap", ["sqrt_d", None])
@pytest.mark.parametrize("name", NORM)
def test_the_first_causal_row_is_its_value_and_pulls_at_no_query(twin: Any, name: str, cap: Any, size: str) -> None:
    """A softmax over one key is constant: whatever gradient arrives here is a rounding error times 1/s."""
    tensors, _ = make(size, "first causal row")
    out = twin.make(name, 2, 4, {"cap": cap}, torch.float32)(*tensors, Causal())
    torch.testing.assert_close(out[:, :, 0], tensors[2][:, :, 0])
    gradient = torch.autograd.grad(out[:, :, 0].square().sum(), tensors[:2])
    assert all(x.abs().max() < 1e-5 for x in gradient)


@pytest.mark.parametrize("mask", [None, Causal()])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NORM)
def test_identical_keys_are_seen_alike_and_pull_at_no_query(twin: Any, name: str, size: str, mask: Any) -> None:
    (q, k, v), _ = make(size, "identical keys")
    operator = twin.make(name, 2, 4, dtype=torch.float32)
    out = operator(q, k, v, mask)
    alike = v.cumsum(2) / torch.arange(1, v.shape[2] + 1)[:, None] if mask else v.mean(2, keepdim=True).expand_as(v)
    torch.testing.assert_close(out, alike, rtol=1e-5, atol=1e-5)
    assert torch.autograd.grad(out.square().sum(), q)[0].abs().max() < 1e-4


@pytest.mark.parametrize("name", NORM)
def test_identical_keys_at_the_front_of_a_long_sequence_do_not_become_noise(twin: Any, name: str) -> None:
    """Three chunks of one repeated token, then others: prefix sums of squares would leave √ε of the first as a false spread."""
    g = torch.Generator().manual_seed(6)
    k = torch.randn(1, 1, 256, 4, generator=g)
    k[:, :, :192] = torch.tensor([30.0, -20.0, 10.0, 40.0])
    q, v = torch.randn(2, 1, 1, 256, 4, generator=g).unbind(0)
    out = twin.make(name, 1, 4, dtype=torch.float32)(q, k, v, Causal())
    alike = v.cumsum(2) / torch.arange(1, 257)[:, None]
    torch.testing.assert_close(out[:, :, :192], alike[:, :, :192], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", NORM)
def test_a_row_without_spread_is_divided_by_the_cap_or_by_the_root(twin: Any, name: str, size: str) -> None:
    (q, k, _), mask = make(size, "identical keys")
    mask = Dense(torch.ones(1, 1, *(SIZES[size][:2]), dtype=torch.bool)) if mask is None else mask
    for cap, rest in (("sqrt_d", 2.0), (0.25, 0.25), (None, 2.0)):
        beta = twin.make(name, 2, 4, {"cap": cap}, torch.float32).beta(q, k, mask)
        assert (beta == 1 / rest).all()


@pytest.mark.parametrize("offset", [0.0, 300.0])
def test_a_common_part_of_the_keys_does_not_blur_the_spread(twin: Any, offset: float) -> None:
    """E[a²] - E[a]² in single precision would be wrong by more than the whole spread at 300."""
    g = torch.Generator().manual_seed(7)
    q, k = torch.randn(2, 1, 1, 100, 4, generator=g, dtype=torch.float64).unbind(0)
    q = q / 8
    operator = twin.make("norm_softmax", 1, 4)
    for mask in (None, Causal(), KeyPadding(torch.arange(100)[None] < 90), Dense(torch.ones(100, 100).bool())):
        kind = KeyPadding(torch.ones(1, 100).bool()) if mask is None else mask
        exact = operator.beta(q, k + offset, kind)
        rough = operator.beta(q.float(), (k + offset).float(), kind)
        torch.testing.assert_close(rough.double()[:, :, 5:], exact[:, :, 5:], rtol=2e-3, atol=0)


@pytest.mark.parametrize("offset", [-2, 0, 3])
def test_no_row_depends_on_a_key_it_does_not_see(twin: Any, offset: int) -> None:
    """To the last bit, even when the later keys are huge: statistics leak easily."""
    g = torch.Generator().manual_seed(8)
    q, k, v = torch.randn(3, 1, 2, 150, 4, generator=g).unbind(0)
    operator = twin.make("norm_softmax", 2, 4, dtype=torch.float32)
    before = operator(q, k, v, Causal(offset)), operator.beta(q, k, Causal(offset))
    for cut in (1, 40, 64, 100):
        other = k.clone()
        other[:, :, cut + offset + 1 :] = 1e6
        changed = v.clone()
        changed[:, :, cut + offset + 1 :] = -1e6
        after = operator(q, other, changed, Causal(offset)), operator.beta(q, other, Causal(offset))
        assert all(torch.equal(x[:, :, : cut + 1], y[:, :, : cut + 1]) for x, y in zip(before, after, strict=True))


@pytest.mark.parametrize("name", ["softmax", "norm_softmax", "norm_softmax_var", "qk_norm", "ssmax", "sinkhorn", "sigmoid"])
def test_a_hidden_key_is_not_seen_where_all_visible_ones_have_the_lowest_bias(twin: Any, name: str) -> None:
    g = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 5, 4, generator=g).unbind(0)
    bias = torch.zeros(5, 5)
    bias[0] = torch.tensor([torch.finfo(torch.float32).min] * 3 + [-torch.inf] * 2)
    operator = twin.make(name, 2, 4).float()
    other = v.clone()
    other[:, :, 3:] += 100.0
    with torch.no_grad():
        assert torch.equal(operator(q, k, v, bias)[:, :, 0], operator(q, k, other, bias)[:, :, 0])
        assert (operator.weights(q, k, bias)[:, :, 0, 3:] == 0).all()
