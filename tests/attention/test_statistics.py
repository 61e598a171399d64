"""Entropy, participation and spread without the matrix, against the matrix."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from eureka.attention.mask import Causal, KeyPadding, NoMask
from eureka.attention.statistics import attention_entropy, participation, row_spread

MASKS = ["none", "causal", "causal from a cache", "causal with blind rows", "padding", "dense", "bias"]
SHAPE = (2, 4, 2, 30, 37, 8)


def explicit(twin: Any, q: Tensor, k: Tensor, beta: Any, mask: Any) -> Tensor:
    """softmax(β·q·k) in double precision, by the second answer of this folder: a temperature of 1 and queries scaled by β."""
    operator = twin.make("temperature", 1, 1, {"temperature": 1.0})
    visible = NoMask() if mask is None else mask
    weights: Tensor = twin.weights_by_hand("temperature", operator, q.double() * beta, k.double(), visible)
    return weights


@pytest.mark.parametrize("few", [0, 10**9])
@pytest.mark.parametrize("per_row", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_entropy_and_participation_equal_the_explicit_ones(
    twin: Any, monkeypatch: pytest.MonkeyPatch, mask: str, per_row: bool, few: int
) -> None:
    for rows_up_to_which_calls_are_fused in ("FEW", "FEW_CAUSAL"):
        monkeypatch.setattr(f"eureka.attention.statistics.{rows_up_to_which_calls_are_fused}", few)
    q, k, _ = (x.detach() for x in twin.inputs(SHAPE, 1.0, torch.float32))
    kind = twin.masks(2, 4, 30, 37, torch.float32)[mask]
    beta: Any = torch.rand(2, 4, 30, 1, generator=torch.Generator().manual_seed(0)) + 0.1 if per_row else 0.35
    p = explicit(twin, q, k, beta, twin.masks(2, 4, 30, 37, torch.float64)[mask])
    entropy = -torch.xlogy(p, p).sum(-1)
    assert (attention_entropy(q, k, beta, kind) - entropy).abs().max() < 1e-4
    assert (participation(q, k, beta, kind) - p.square().sum(-1)).abs().max() < 1e-4
    assert entropy.max() > 0.5


@pytest.mark.parametrize("mask", MASKS)
def test_logits_of_ten_thousand_do_not_cancel(twin: Any, mask: str) -> None:
    q, k, _ = (x.detach() * 60 for x in twin.inputs(SHAPE, 1.0, torch.float32))
    kind = twin.masks(2, 4, 30, 37, torch.float32)[mask]
    p = explicit(twin, q, k, 1.0, twin.masks(2, 4, 30, 37, torch.float64)[mask])
    assert (q @ k.repeat_interleave(2, 1).mT).abs().max() > 1e4
    assert (attention_entropy(q, k, 1.0, kind) + torch.xlogy(p, p).sum(-1)).abs().max() < 1e-3
    assert (participation(q, k, 1.0, kind) - p.square().sum(-1)).abs().max() < 1e-3


@pytest.mark.parametrize("mask", ["causal", "dense", "bias"])
def test_blocks_of_rows_have_their_own_rows_of_the_mask(twin: Any, monkeypatch: pytest.MonkeyPatch, mask: str) -> None:
    monkeypatch.setattr("eureka.attention.variance.BLOCK", 8 * 37 * 4)
    test_logits_of_ten_thousand_do_not_cancel(twin, mask)


@pytest.mark.parametrize("mask", MASKS)
def test_row_spread_is_the_deviation_of_the_visible_logits(twin: Any, mask: str) -> None:
    q, k, _ = (x.detach() for x in twin.inputs(SHAPE, 1.0, torch.float64))
    kind = twin.masks(2, 4, 30, 37, torch.float64)[mask]
    shown = twin.weights_by_hand("temperature", twin.make("temperature", 1, 1), q, k, NoMask() if kind is None else kind) > 0
    logits = q @ k.repeat_interleave(2, 1).mT
    want = torch.stack([row[seen].std(correction=0) if seen.any() else row.new_zeros(()) for row, seen in rows(logits, shown)])
    torch.testing.assert_close(row_spread(q, k, kind).flatten(), want)


def rows(*tensors: Tensor) -> Any:
    return zip(*(x.flatten(0, 2) for x in tensors), strict=True)


@pytest.mark.parametrize("few", [0, 10**9])
def test_a_row_that_sees_nothing_counts_as_zero(monkeypatch: pytest.MonkeyPatch, few: int) -> None:
    monkeypatch.setattr("eureka.attention.statistics.FEW", few)
    q, k = torch.randn(2, 2, 1, 5, 4, generator=torch.Generator().manual_seed(0)).unbind(0)
    blind = KeyPadding(torch.tensor([[True] * 5, [False] * 5]))
    for statistic in (attention_entropy(q, k, 1.0, blind), participation(q, k, 1.0, blind), row_spread(q, k, blind)):
        assert (statistic[1] == 0).all()
        assert (statistic[0] > 0).all()


def test_a_key_that_is_hidden_weighs_less_than_the_lowest_bias() -> None:
    q, k = torch.zeros(1, 1, 1, 4), torch.randn(1, 1, 9, 4, generator=torch.Generator().manual_seed(0))
    bias = torch.full((1, 9), -torch.inf)
    bias[0, :3] = torch.finfo(torch.float32).min
    assert attention_entropy(q, k, 1.0, bias).item() == pytest.approx(math.log(3))
    assert participation(q, k, 1.0, bias).item() == pytest.approx(1 / 3)


def test_a_common_part_of_the_keys_neither_blurs_the_entropy_nor_leaves_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eureka.attention.statistics._by_blocks", None)
    q, k = torch.randn(2, 1, 1, 50, 8, generator=torch.Generator().manual_seed(0)).unbind(0)
    for mask in (None, Causal()):
        plain, shifted = attention_entropy(q, k, 0.35, mask), attention_entropy(q, k + 500, 0.35, mask)
        assert (plain - shifted).abs().max() < 1e-3


def test_they_also_take_half_precision_and_say_so_in_single() -> None:
    q, k = torch.randn(2, 1, 1, 20, 8, generator=torch.Generator().manual_seed(0)).bfloat16().unbind(0)
    assert attention_entropy(q, k, 0.35).dtype == torch.float32
    torch.testing.assert_close(attention_entropy(q, k, 0.35), attention_entropy(q.float(), k.float(), 0.35))
