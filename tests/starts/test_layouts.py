"""W_Q and W_K wherever they lie: fused, grouped, in any order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from tests.starts.twins import BATCH, TOKENS, FusedAttention, Grouped, explicit_logits, features, refusal, state


class Apart(FusedAttention):
    """W_Q alone, W_K and W_V in one; a quarter of the keys."""

    def __init__(self) -> None:
        super().__init__()
        del self.qkv
        self.to_q, self.to_kv = nn.Linear(16, 16, bias=False), nn.Linear(16, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = self.to_q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.to_kv(x[:, ::4]).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_keys_and_values_from_one_weight_beside_the_queries() -> None:
    torch.manual_seed(0)
    model, x = Apart(), features(BATCH, TOKENS, 16)
    values = model.to_kv.weight[16:].detach().clone()
    eureka.clear_start(model, x, positions=None)
    q, k = model.to_q(x), model.to_kv(x[:, ::4])[..., :16]
    q, k = (y.detach().double().unflatten(-1, (2, -1)).transpose(1, 2) for y in (q, k))
    assert explicit_logits(q, k, causal=False) == pytest.approx([1.0, 1.0], rel=0.01)
    assert torch.equal(model.to_kv.weight[16:], values)


@pytest.mark.parametrize("asked", [{}, {"repeated": True}, {"turned": True}, {"turned": True, "repeated": True}])
def test_grouped_heads_from_one_layer_are_told_apart_by_the_call(asked: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = Grouped(**asked), features(BATCH, TOKENS, 16)
    before = state(model)
    start = eureka.clear_start(model, x, positions=None)
    assert start.logits[0].after == pytest.approx([1.0] * 4, rel=0.01)
    assert torch.equal(model.get_parameter("qkv.weight")[24:], before["qkv.weight"][24:])  # v
    if not asked.get("turned"):
        with torch.no_grad():
            q, k, _ = (part.double() for part in model.projected(x))
        assert explicit_logits(q, k.repeat_interleave(2, dim=1), causal=False) == pytest.approx([1.0] * 4, rel=0.01)


class AnotherOrder(FusedAttention):
    """One layer that holds q, k and v head by head, or v first."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order

    def projected(self, x: Tensor) -> Tensor:
        """(3, B, H, N, D)."""
        if self.order == "by head":
            return self.qkv(x).unflatten(-1, (self.heads, 3, -1)).permute(3, 0, 2, 1, 4)  # type: ignore[no-any-return]
        return self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).flip(0)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Stretched(AnotherOrder):
    """As before, and q, k and v are changed on the way, so that no row is seen as it is."""

    def projected(self, x: Tensor) -> Tensor:
        return super().projected(x) * torch.linspace(1, 2, x.shape[1])[:, None]


class Rotated(AnotherOrder):
    """Pairs of features are turned from token to token, so that no row makes a feature alone."""

    def projected(self, x: Tensor) -> Tensor:
        angles = torch.arange(x.shape[1])[:, None] * torch.linspace(1, 0.1, 4)
        one, other = super().projected(x).chunk(2, dim=-1)
        return torch.cat([one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()], dim=-1)


@pytest.mark.parametrize("attention", [AnotherOrder, Stretched, Rotated])
@pytest.mark.parametrize("order", ["by head", "v, k, q"])
def test_queries_keys_and_values_may_lie_in_any_order(order: str, attention: type[AnotherOrder]) -> None:
    torch.manual_seed(0)
    model, x = attention(order), features(BATCH, TOKENS, 16)
    with torch.no_grad():
        values = model.projected(x)[2]
        eureka.clear_start(model, x, positions=None)
        q, k, v = model.projected(x)
    assert explicit_logits(q.double(), k.double(), causal=False) == pytest.approx([1.0, 1.0], rel=0.01)
    assert torch.equal(v, values)


class Across(FusedAttention):
    """W_Q and W_K have usual names, and the features of their heads lie across each other."""

    def __init__(self) -> None:
        super().__init__()
        del self.qkv
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(16, 16) for _ in range(3))

    def projected(self, x: Tensor) -> list[Tensor]:
        return [layer(x).unflatten(-1, (-1, self.heads)).movedim(-1, 1) for layer in (self.q_proj, self.k_proj, self.v_proj)]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_heads_that_lie_across_each_other_are_rescaled_one_by_one() -> None:
    torch.manual_seed(0)
    model, x = Across(), features(BATCH, TOKENS, 16)
    with torch.no_grad():
        model.q_proj.weight[::2] *= 3  # the first head
        before = state(model)
        start = eureka.clear_start(model, x, positions=None)
        q, k, _ = model.projected(x)
    assert start.notes == ()
    assert explicit_logits(q.double(), k.double(), causal=False) == pytest.approx([1.0, 1.0], rel=0.01)
    grown = model.q_proj.weight / before["q_proj.weight"]
    torch.testing.assert_close(grown, grown[:2, :1].expand(-1, 16).repeat(8, 1))


class InputsFirst(nn.Module):
    """One head; one matrix for q, k and v that is kept the other way round; rotary positions."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.randn(16, 48) / 4)

    def forward(self, x: Tensor) -> Tensor:
        v, k, q = (part[:, None] for part in (x @ self.matrix).chunk(3, dim=-1))
        angles = torch.arange(x.shape[1])[:, None] * torch.linspace(1, 0.1, 8)
        q, k = (torch.cat([-part[..., 8:], part[..., :8]], -1) * angles.sin().repeat(1, 2) + part for part in (q, k))
        return F.scaled_dot_product_attention(q, k, v)[:, 0]


def test_columns_of_a_matrix_may_make_the_only_head() -> None:
    torch.manual_seed(0)
    model = InputsFirst()
    before = model.matrix.detach().clone()
    start = eureka.clear_start(model, features(BATCH, TOKENS, 16), positions=None)
    assert start.notes == ()
    assert start.logits[0].after == pytest.approx([1.0], rel=0.01)
    assert torch.equal(model.matrix[:, :16], before[:, :16])
    assert not torch.equal(model.matrix[:, 16:], before[:, 16:])


class NormedHeads(AnotherOrder):
    """A norm hides which rows make q and k."""

    def projected(self, x: Tensor) -> Tensor:
        q, k, v = super().projected(x)
        return torch.stack([F.normalize(q, dim=-1), F.normalize(k, dim=-1), v])


def test_an_order_that_is_not_seen_is_among_the_reasons() -> None:
    torch.manual_seed(0)
    message = refusal(NormedHeads("v, k, q"), features(BATCH, TOKENS, 16), positions=None)
    assert "that makes more than q (values, a gate or a residual), or q, k and v lie in another order; the spread" in message


class Widened(Grouped):
    """More comes out of the one layer than q, k and v."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 37)

    def projected(self, x: Tensor) -> list[Tensor]:
        parts = (2 * self.qkv(x)).split([16, 8, 8, 5], dim=-1)[:3]
        return [part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in parts]


class WidenedAndNormed(Widened):
    def projected(self, x: Tensor) -> list[Tensor]:
        q, k, v = super().projected(x)
        return [F.normalize(q, dim=-1), F.normalize(k, dim=-1), v]


def test_one_layer_that_does_not_fit_its_heads_is_named_unless_its_rows_are_found_by_what_they_do() -> None:
    torch.manual_seed(0)
    start = eureka.clear_start(Widened(), features(BATCH, TOKENS, 16), positions=None)
    assert start.logits[0].after == pytest.approx([1.0] * 4, rel=0.01)
    message = refusal(WidenedAndNormed(), features(BATCH, TOKENS, 16), positions=None)
    assert ": WidenedAndNormed has one layer of 37 outputs for q, k and v, which do not fit its heads; the spread is" in message
