"""What must hold whatever the shape: sums, permutations, shifts, and the same bits as PyTorch's own kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, NoMask
from eureka.attention.registry import FIXES

SUM_TO_ONE = [name for name in FIXES.names() if name not in ("softmax_plus_one", "sigmoid", "linear")]
FEELS_A_SHIFT = ["softmax_plus_one", "sigmoid", "linear", "qk_norm", "qk_layernorm", "qr"]
"""Adding a constant to a row's logits (one vector to all keys) changes these: their weights are no function of differences, or
they look at each key by itself."""
shapes = st.tuples(
    st.integers(1, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 12), st.integers(1, 12), st.integers(1, 5)
)  # B, Hk, H/Hk, Q, K, D
quick = settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])


def draw(shape: tuple[int, ...], seed: int) -> tuple[Tensor, Tensor, Tensor, KeyPadding]:
    batch, groups, times, queries, keys, d = shape
    g = torch.Generator().manual_seed(seed)
    q = torch.randn(batch, groups * times, queries, d, generator=g, dtype=torch.float64)
    k, v = torch.randn(2, batch, groups, keys, d, generator=g, dtype=torch.float64).unbind(0)
    visible = torch.rand(batch, keys, generator=g) > 0.3
    visible[:, 0] = True
    return q, k, v, KeyPadding(visible)


@pytest.mark.parametrize("name", FIXES.names())
@quick
@given(shape=shapes, seed=st.integers(0, 99))
def test_outputs_equal_the_formula_for_any_shape(twin: Any, name: str, shape: tuple[int, ...], seed: int) -> None:
    q, k, v, mask = draw(shape, seed)
    operator = twin.make(name, q.shape[1], q.shape[3])
    torch.testing.assert_close(operator(q, k, v, mask), twin.by_hand(name, operator, q, k, v, mask), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("name", SUM_TO_ONE)
@quick
@given(shape=shapes, seed=st.integers(0, 99))
def test_rows_sum_to_one(twin: Any, name: str, shape: tuple[int, ...], seed: int) -> None:
    q, k, _, mask = draw(shape, seed)
    sums = twin.make(name, q.shape[1], q.shape[3]).weights(q, k, mask).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("name", ["softmax_plus_one", "sigmoid", "linear"])
def test_rows_of_the_others_do_not_sum_to_one(twin: Any, name: str) -> None:
    q, k, _, mask = draw((1, 1, 1, 4, 8, 4), 0)
    assert ((twin.make(name, 1, 4).weights(q, k, mask).sum(-1) - 1).abs() > 1e-3).any()


@pytest.mark.parametrize("name", FIXES.names())
@quick
@given(shape=shapes, seed=st.integers(0, 99))
def test_permuting_keys_permutes_weights(twin: Any, name: str, shape: tuple[int, ...], seed: int) -> None:
    q, k, _, mask = draw(shape, seed)
    order = torch.randperm(k.shape[2], generator=torch.Generator().manual_seed(seed))
    operator = twin.make(name, q.shape[1], q.shape[3])
    permuted = operator.weights(q, k[:, :, order], KeyPadding(mask.visible[:, order]))
    torch.testing.assert_close(permuted, operator.weights(q, k, mask)[..., order])


@pytest.mark.parametrize("name", FIXES.names())
def test_shifting_all_keys_changes_nothing_except_where_it_must(twin: Any, name: str) -> None:
    q, k, _, mask = draw((1, 2, 1, 5, 9, 4), 1)
    operator = twin.make(name, 2, 4)
    shift = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    same = torch.allclose(operator.weights(q, k + shift, mask), operator.weights(q, k, mask), atol=1e-9)
    assert same == (name not in FEELS_A_SHIFT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "dense", "bias"])
def test_softmax_equals_sdpa_to_the_last_bit_on_the_fused_path(twin: Any, mask: str, dtype: torch.dtype) -> None:
    shape = (2, 4, 2, 40, 40, 8)
    tensors = twin.inputs(shape, 1.0, dtype)
    kind = twin.masks(2, 4, 40, 40, dtype)[mask]
    own = None
    if isinstance(kind, KeyPadding):
        own = kind.visible[:, None, None]
    elif isinstance(kind, (Dense, Bias)):
        own = kind.visible if isinstance(kind, Dense) else kind.bias
    operator = twin.make("softmax", 4, 8)
    assert not operator.short(*tensors[:2], NoMask())

    def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, own, is_causal=isinstance(kind, Causal), enable_gqa=True)

    mine = twin.answer(lambda q, k, v: operator(q, k, v, kind), tensors, [])
    assert all(torch.equal(x, y) for x, y in zip(mine, twin.answer(sdpa, tensors, []), strict=True))


def test_norm_softmax_is_softmax_when_spread_exceeds_sqrt_d(twin: Any) -> None:
    for shape in ((1, 2, 1, 9, 9, 4), (1, 2, 1, 40, 40, 4)):
        q, k, v = twin.inputs(shape, 8.0, torch.float64)
        capped, plain, free = (
            twin.make("norm_softmax", 2, 4),
            twin.make("softmax", 2, 4),
            twin.make("norm_softmax", 2, 4, {"cap": None}),
        )
        big = (1 / free.beta(q, k, KeyPadding(torch.ones(1, shape[4]).bool()))) > 2
        rows = big.expand(-1, -1, -1, 4)
        assert rows.any()
        torch.testing.assert_close(capped(q, k, v)[rows], plain(q, k, v)[rows])
        assert not torch.allclose(free(q, k, v)[rows], plain(q, k, v)[rows])


@pytest.mark.parametrize("name", ["softmax", "norm_softmax", "sigmoid", "linear"])
def test_dropout_drops_weights_and_keeps_their_mean(twin: Any, name: str) -> None:
    q, k, v = (x.detach() for x in twin.inputs((64, 4, 2, 12, 12, 8), 1.0, torch.float64))
    torch.manual_seed(0)
    operator = twin.make(name, 4, 8)
    full, thinned = operator(q, k, v), operator(q, k, v, None, 0.5)
    assert not torch.allclose(full, thinned)
    assert (thinned.mean((0, 1, 2)) - full.mean((0, 1, 2))).abs().max() < 0.05 * full.abs().max()
