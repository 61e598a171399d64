"""Every operator against its formula, one row at a time: values and gradients, every mask, both regimes of every minimum."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch

from eureka.attention.mask import Causal, NoMask
from eureka.attention.operator import SoftmaxFamily
from eureka.attention.registry import FIXES

SHAPES = {  # (B, H, Hk, Q, K, D)
    "self": (2, 2, 2, 6, 6, 4),
    "grouped": (2, 4, 2, 5, 5, 4),
    "cross": (1, 2, 1, 4, 9, 4),
    "long": (1, 2, 1, 68, 80, 4),  # above the crossover of NormSoftmax, two chunks of causal rows
    "batch": (4, 8, 4, 17, 17, 4),  # below the crossover of the others: 9,248 weights
}
MASKS = ["none", "causal", "causal from a cache", "causal with blind rows", "padding", "dense", "bias"]
NORM = ["norm_softmax", "norm_softmax_var"]
CASES = [
    (name, shape, mask)
    for name, shape, mask in product(FIXES.names(), SHAPES, MASKS)
    if not (name == "qr" and shape in ("long", "batch"))  # Cholesky by hand would take minutes
    and not (shape == "batch" and (name in ("linear", "sigmoid", "sinkhorn") or mask not in ("none", "causal", "bias")))
]


def check(twin: Any, name: str, shape: str, mask: str, scale: float, dtype: torch.dtype, **settings: Any) -> None:
    batch, heads, groups, queries, keys, d = SHAPES[shape]
    operator = twin.make(name, heads, d, settings, dtype)
    tensors = twin.inputs((batch, heads, groups, queries, keys, d), scale, dtype)
    kind = twin.masks(batch, heads, queries, keys, dtype)[mask]
    parameters = list(operator.parameters())
    got = twin.answer(lambda q, k, v: operator(q, k, v, kind), tensors, parameters)
    exact = operator.double()
    wide = [x.detach().double().requires_grad_() for x in tensors]
    kind = twin.masks(batch, heads, queries, keys, torch.float64)[mask]
    want = twin.answer(lambda q, k, v: twin.by_hand(name, exact, q, k, v, kind), wide, list(exact.parameters()))
    if name == "gradient_balance":
        got, want = got[:1] + got[3:4], want[:1] + want[3:4]  # its q and k gradients are its own affair
    tolerance = 1e-9 if dtype == torch.float64 else 2e-4
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=tolerance, atol=tolerance * max(1.0, theirs.abs().max().item()))


@pytest.mark.parametrize(("name", "shape", "mask"), CASES)
def test_values_and_gradients_equal_the_formula(twin: Any, name: str, shape: str, mask: str) -> None:
    check(twin, name, shape, mask, 0.6, torch.float64)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", ["grouped", "long"])
@pytest.mark.parametrize("name", NORM)
def test_norm_softmax_equals_the_formula_when_the_spread_exceeds_the_cap(twin: Any, name: str, shape: str, mask: str) -> None:
    check(twin, name, shape, mask, 3.0, torch.float64)


@pytest.mark.parametrize("cap", [0.2, None])
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "dense"])
@pytest.mark.parametrize("shape", ["grouped", "long"])
@pytest.mark.parametrize("name", NORM)
def test_norm_softmax_equals_the_formula_with_another_cap_or_none(twin: Any, name: str, shape: str, mask: str, cap: Any) -> None:
    check(twin, name, shape, mask, 0.6, torch.float64, cap=cap)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", FIXES.names())
def test_single_precision_is_as_exact_as_it_can_be(twin: Any, name: str, mask: str) -> None:
    shape = "grouped" if name in ("qr", "sinkhorn") else "long"
    check(twin, name, shape, mask, 0.6, torch.float32)


@pytest.mark.parametrize(("scale", "below"), [(0.6, True), (3.0, False)])
def test_the_two_scales_of_these_tests_are_the_two_regimes(twin: Any, scale: float, below: bool) -> None:
    for shape in SHAPES.values():
        q, k, _ = twin.inputs(shape, scale, torch.float64)
        spread = 1 / twin.make("norm_softmax", 1, 1, {"cap": None}).beta(q, k, NoMask())
        share = (spread < shape[-1] ** 0.5).double().mean().item()
        assert share > 0.9 if below else share < 0.6


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "dense", "bias"])
@pytest.mark.parametrize(
    ("name", "path"),
    [*((name, "short") for name in FIXES.names() if name != "gradient_balance"), *((name, "long") for name in NORM)],
)
def test_gradcheck(twin: Any, name: str, mask: str, path: str) -> None:
    shape = (1, 2, 1, 3, 4, 3) if path == "short" else (1, 2, 1, 6, 7, 1)
    operator = twin.make(name, 2, shape[-1])
    kind = twin.masks(1, 2, *shape[3:5], torch.float64)[mask]
    assert torch.autograd.gradcheck(lambda q, k, v: operator(q, k, v, kind), twin.inputs(shape, 0.7, torch.float64))


@pytest.mark.parametrize("name", [name for name in FIXES.names() if name != "qr"])
def test_bfloat16_is_within_its_resolution(twin: Any, name: str) -> None:
    """Of the same inputs in double precision, everything after them counted; 2⁻⁸ is half a unit in the last place."""
    batch, heads, groups, queries, keys, d = SHAPES["long"]
    tensors = twin.inputs((batch, heads, groups, queries, keys, d), 0.6, torch.bfloat16)
    exact, rounded = twin.make(name, heads, d), twin.make(name, heads, d, dtype=torch.bfloat16)
    want = exact(*(x.detach().double() for x in tensors))
    got = rounded(*tensors)
    assert got.dtype == torch.bfloat16
    assert (got.double() - want).abs().max() <= 4 * 2**-8 * max(1.0, want.abs().max().item())


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", FIXES.names())
def test_weights_times_values_are_the_output(twin: Any, name: str, mask: str) -> None:
    for shape in (SHAPES["grouped"], SHAPES["long"]):
        batch, heads, groups, queries, keys, d = shape
        operator = twin.make(name, heads, d)
        q, k, v = twin.inputs(shape, 0.6, torch.float64)
        kind = twin.masks(batch, heads, queries, keys, torch.float64)[mask]
        whole = v.repeat_interleave(heads // groups, dim=1)
        torch.testing.assert_close(operator(q, k, v, kind), operator.weights(q, k, kind) @ whole)


def take_blocks(monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    """NormSoftmax takes blocks of weights for every shape: one or two heads of a sample, five causal rows."""
    monkeypatch.setattr("eureka.attention.norm_softmax.MANY", 0)
    monkeypatch.setattr("eureka.attention.norm_softmax.BLOCKS", 1000)
    monkeypatch.setattr("eureka.attention.norm_softmax.BLOCKS_CAUSAL", 1000)
    monkeypatch.setattr("eureka.attention.norm_blocks.BLOCK", 100)
    monkeypatch.setattr("eureka.attention.norm_blocks.ROWS", 5)
    monkeypatch.setattr("eureka.attention.norm_blocks.KEPT", 1000 if kept else 0)


@pytest.fixture(params=[True, False], ids=["weights kept", "weights made again"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    take_blocks(monkeypatch, request.param)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("scale", [0.6, 3.0])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("shape", ["self", "grouped", "cross", "batch"])
@pytest.mark.parametrize("name", NORM)
def test_blocks_of_weights_equal_the_formula_on_both_sides_of_the_cap(
    twin: Any, name: str, shape: str, mask: str, scale: float
) -> None:
    check(twin, name, shape, mask, scale, torch.float64)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("mask", MASKS)
def test_blocks_of_weights_are_as_exact_in_single_precision(twin: Any, mask: str) -> None:
    check(twin, "norm_softmax", "long", mask, 0.6, torch.float32)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("mask", ["none", "causal", "padding", "dense", "bias"])
def test_gradcheck_of_blocks_of_weights(twin: Any, mask: str) -> None:
    operator = twin.make("norm_softmax", 2, 3)
    kind = twin.masks(2, 2, 6, 6, torch.float64)[mask]
    tensors = twin.inputs((2, 2, 2, 6, 6, 3), 0.7, torch.float64)
    assert torch.autograd.gradcheck(lambda q, k, v: operator(q, k, v, kind), tensors)


@pytest.mark.parametrize("mask", ["none", "causal", "padding", "bias"])
@pytest.mark.parametrize("side_by_side", [False, True])
def test_blocks_give_what_whole_weights_give(twin: Any, monkeypatch: pytest.MonkeyPatch, mask: str, side_by_side: bool) -> None:
    """In either memory order, for values of another width, in bfloat16 too."""
    operator = twin.make("norm_softmax", 2, 8)
    kind = twin.masks(3, 2, 12, 12, torch.float32)[mask]
    q, k, _ = (x.detach() for x in twin.inputs((3, 2, 2, 12, 12, 8), 0.6, torch.float32))
    v = torch.randn(3, 2, 12, 5, generator=torch.Generator().manual_seed(1))
    if side_by_side:
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    want = operator(q, k, v, kind), operator(q.bfloat16(), k.bfloat16(), v.bfloat16(), kind)
    take_blocks(monkeypatch, kept=True)
    got = operator(q, k, v, kind)
    torch.testing.assert_close(got, want[0])
    assert got.stride() == (q.stride() if v.shape[-1] == q.shape[-1] else got.stride())
    torch.testing.assert_close(operator(q.bfloat16(), k.bfloat16(), v.bfloat16(), kind), want[1], rtol=0.02, atol=0.02)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("shape", [(1, 2, 6, 6), (2, 2, 6, 6)])
def test_a_bias_that_learns_gets_its_gradient(twin: Any, shape: tuple[int, ...]) -> None:
    operator = twin.make("norm_softmax", 2, 4)
    q, k, v = twin.inputs((2, 2, 2, 6, 6, 4), 0.6, torch.float64)
    bias = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    assert torch.autograd.gradcheck(lambda bias: operator(q, k, v, bias), [bias])


@pytest.mark.parametrize("mask", ["dense", "bias"])
def test_blocks_of_rows_have_their_own_rows_of_the_mask(twin: Any, monkeypatch: pytest.MonkeyPatch, mask: str) -> None:
    monkeypatch.setattr("eureka.attention.variance.BLOCK", 2 * 80 * 5)  # blocks of five rows, the last one shorter
    check(twin, "norm_softmax", "long", mask, 0.6, torch.float64)


@pytest.mark.parametrize("shape", ["grouped", "long"])
@pytest.mark.parametrize("name", ["softmax", "norm_softmax", "ssmax", "sinkhorn"])
def test_a_mask_may_have_fewer_dimensions_than_the_weights(twin: Any, name: str, shape: str) -> None:
    batch, heads, groups, queries, keys, d = SHAPES[shape]
    operator = twin.make(name, heads, d)
    q, k, v = twin.inputs((batch, heads, groups, queries, keys, d), 0.6, torch.float64)
    whole = torch.rand(batch, heads, queries, keys, generator=torch.Generator().manual_seed(0)) > 0.4
    for mask in (whole[0, 0, 0], whole[0, 0], whole[0], whole[0, :, :1], whole[:, :1, :, :1], whole[:, :, :1]):
        torch.testing.assert_close(operator(q, k, v, mask), operator(q, k, v, mask.expand(batch, heads, queries, keys)))


def test_the_shapes_of_these_tests_take_both_paths(twin: Any) -> None:
    def short(name: str, shape: str) -> bool:
        operator = twin.make(name, SHAPES[shape][1], SHAPES[shape][-1])
        assert isinstance(operator, SoftmaxFamily)
        q, k, _ = twin.inputs(SHAPES[shape], 1.0, torch.float64)
        return operator.short(q, k, Causal())

    assert (short("norm_softmax", "self"), short("norm_softmax", "long")) == (True, False)
    assert (short("temperature", "batch"), short("temperature", "long")) == (True, False)
