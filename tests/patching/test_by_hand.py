"""Attention that is written out: q·k, scale, masks, softmax and the product with v in the module's own code."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.errors import RequestError, WorkError
from eureka.patching.attach import find_sites
from eureka.probes.capture import capture

B, N, E, H = 3, 6, 12, 2
D = E // H


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(E, 3 * E)
        self.num_heads, self.head_dim = H, D
        self.bias = nn.Parameter(torch.randn(H, N, N))

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, D)).permute(2, 0, 3, 1, 4)
        return q, k, v


class Plain(Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        weights: Tensor = (q @ k.transpose(-2, -1) / D**0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


class Masked(Base):
    """As GPT-J: a scale that is a tensor, a mask by torch.where, an additive bias."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        scores = torch.matmul(q, k.transpose(-1, -2)) / torch.tensor(D**0.5)
        seen = torch.ones(N, N, dtype=torch.bool).tril()
        scores = torch.where(seen, scores, torch.finfo(scores.dtype).min) + self.bias
        return (F.softmax(scores, dim=-1) @ v).transpose(1, 2).flatten(2)


class InPlace(Base):
    """As Bloom and XLM: heads folded into the batch, baddbmm, masked_fill_, views."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.reshape(B * H, N, D) for one in self.heads(x))
        alibi = self.bias[None].expand(B, -1, -1, -1).reshape(B * H, N, N)
        scores = alibi.baddbmm(q, k.transpose(1, 2), beta=1.0, alpha=D**-0.5).view(B, H, N, N)
        scores = scores.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), float("-inf"))
        weights = torch.softmax(scores, dim=-1).view(B * H, N, N)
        return torch.bmm(weights, v).view(B, H, N, D).transpose(1, 2).flatten(2)


class Einsum(Base):
    """As XLNet: einsum with the sequence in front; and as Swin v2, a scale for each head."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (one.permute(2, 0, 1, 3) for one in self.heads(x))
        scale = torch.arange(1.0, H + 1, dtype=x.dtype)[:, None, None]
        scores = torch.einsum("ibnd,jbnd->bnij", q, k) * scale + self.bias
        mixed = torch.einsum("bnij,jbnd->ibnd", scores.softmax(dim=3), v)
        return mixed.permute(1, 0, 2, 3).flatten(2)


class Capped(Base):
    """Something that no scale and no bias is."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        weights: Tensor = (q @ k.transpose(-2, -1) / D**0.5).tanh().softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


FOLLOWED = [Plain, Masked, InPlace, Einsum]


def run(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    outputs: Tensor = model(x)
    outputs.square().sum().backward()  # type: ignore[no-untyped-call]
    return [outputs.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def given() -> Tensor:
    return 2 * torch.randn(B, N, E, generator=torch.Generator().manual_seed(1), dtype=torch.double)


@pytest.mark.parametrize("cls", FOLLOWED, ids=lambda cls: cls.__name__)
def test_with_plain_softmax_it_is_itself_in_outputs_and_gradients(cls: Callable[[], nn.Module]) -> None:
    model, x = cls().double(), given()
    wanted = run(model, x)
    with eureka.patch(model, "softmax") as patched:
        assert [site.kind for site in patched.sites] == ["by_hand"]
        for one, other in zip(run(model, x), wanted, strict=True):
            torch.testing.assert_close(one, other)
    assert all(torch.equal(one, other) for one, other in zip(run(model, x), wanted, strict=True))
    assert type(model) is cls


def parts(model: Any, x: Tensor) -> dict[str, Any]:
    """What the explicit formula needs: hidden keys, scale and bias of each class."""
    causal = torch.ones(N, N, dtype=torch.bool).triu(1)
    q, k, v = model.heads(x)
    bias = model.bias.to(x.dtype)
    if isinstance(model, Einsum):
        q = q * torch.arange(1.0, H + 1, dtype=x.dtype)[:, None, None]
        return {"q": q, "k": k, "v": v, "hidden": None, "scale": 1.0, "bias": bias}
    hidden = None if isinstance(model, Plain) else causal
    return {"q": q, "k": k, "v": v, "hidden": hidden, "scale": D**-0.5, "bias": None if isinstance(model, Plain) else bias}


@pytest.mark.parametrize("cls", FOLLOWED, ids=lambda cls: cls.__name__)
def test_norm_softmax_is_the_explicit_formula(cls: Callable[[], nn.Module], explicit: Callable[..., Tensor]) -> None:
    model, x = cls().double(), given()
    with eureka.patch(model, "norm_softmax"):
        found = model(x)
    torch.testing.assert_close(found, explicit(**parts(model, x)).transpose(1, 2).flatten(2))
    assert (found - model(x)).abs().max() > 1e-2


@pytest.mark.parametrize("fix", ["learnable_temperature", "qk_norm", "ssmax", "qk_layernorm", "sigmoid", "linear"])
def test_other_operators_get_the_heads_that_the_module_has(fix: str) -> None:
    model = InPlace().double()
    with eureka.patch(model, fix):
        found = run(model, given())
    assert all(one.isfinite().all() for one in found)


def test_what_cannot_be_followed_is_said_on_the_first_call_and_undone() -> None:
    model, x = Capped().double(), given()
    wanted = model(x)
    patched = eureka.patch(model, "norm_softmax")
    with pytest.raises(WorkError, match="Capped was patched, but this call of it made no attention call that could be swapped"):
        model(x)
    assert not patched.active
    assert torch.equal(model(x), wanted)


def test_a_control_that_needs_values_is_refused_when_patched() -> None:
    with pytest.raises(RequestError, match="writes its softmax out, where GradientBalance cannot reach its values"):
        eureka.patch(Plain(), "gradient_balance")


def test_a_probe_sees_attention_that_is_written_out() -> None:
    model = Masked().double()
    with eureka.AttentionProbe(model) as probe, probe.look():
        model(given())
    assert len(probe.records[0].sites[0].values["entropy"]) == H


@pytest.mark.parametrize("fix", [None, "norm_softmax"])
@pytest.mark.parametrize("cls", FOLLOWED, ids=lambda cls: cls.__name__)
def test_observers_see_the_values_that_its_weights_are_multiplied_with(cls: Callable[[], nn.Module], fix: str | None) -> None:
    model, x = cls().double(), given()
    with eureka.patch(model, fix) if fix else nullcontext(), capture(model, find_sites(model).sites) as calls, torch.no_grad():
        model(x)
    (call,) = calls[0]
    assert call.v is not None
    for found, wanted in zip((call.k, call.v), model.heads(x)[1:], strict=True):  # type: ignore[operator]
        assert torch.equal(found, wanted)
    assert (call.operator is None) is (fix is None)


class Mixed(Base):
    """Heads are mixed after the softmax, so that no head has values of its own; it attends twice."""

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            q, k, v = self.heads(x)
            weights = (q @ k.transpose(-2, -1)).softmax(-1)
            x = (weights.flip(1).cumsum(dim=1) @ v).transpose(1, 2).flatten(2)
        return x


def test_values_that_are_not_met_are_none_and_no_call_is_lost() -> None:
    model, x = Mixed().double(), given()
    with capture(model, find_sites(model).sites) as calls, torch.no_grad():
        model(x)
    assert [call.v for call in calls[0]] == [None, None]
    q, k, _ = model.heads(x)
    torch.testing.assert_close(calls[0][0].q, q * D**0.5)
    assert torch.equal(calls[0][0].k, k)
    with pytest.raises(RequestError, match="Mixed writes its attention out, and its values could not be followed"):
        eureka.linear_probes(model, (x, {"odd": torch.arange(B) % 2}))


def test_linear_probes_read_the_same_off_attention_that_is_written_out() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, N, E)
    answers = {"sign": (x[:, 0, 0] > 0).long()}
    written, fused = (eureka.linear_probes(model, (x, answers)) for model in (Plain(), Inner()))
    assert [(probe.representation, probe.head) for probe in written] == [(probe.representation, probe.head) for probe in fused]
    assert {probe.representation for probe in written} == {"q", "k", "v", "z"}
    for one, other in zip(written, fused, strict=True):
        assert one.bits == pytest.approx(other.bits, rel=1e-3)


def test_autocast_and_compilation_reach_it() -> None:
    model, x = Plain(), given().float()
    with eureka.patch(model, "norm_softmax"):
        wanted = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(model(x).float(), wanted, rtol=0.1, atol=0.1)


KERNELS: dict[str, Callable[..., Tensor]] = {"native": F.scaled_dot_product_attention}


class Chosen(Plain):
    """Takes the function from a table, as the dispatcher of diffusers does: its code shows a softmax only."""

    def forward(self, x: Tensor) -> Tensor:
        if self.head_dim > 100:
            return super().forward(x)
        return KERNELS["native"](*self.heads(x)).transpose(1, 2).flatten(2)


def test_a_call_of_the_fused_function_that_the_code_hides_goes_to_the_operator() -> None:
    model, written, x = Chosen(), Plain(), torch.randn(B, N, E)
    plain = model(x)
    with eureka.patch(model, "softmax"):
        torch.testing.assert_close(model(x), plain)
    with eureka.patch(model, "norm_softmax"), eureka.patch(written, "norm_softmax"):
        assert not torch.allclose(model(x), plain)
        torch.testing.assert_close(model(x), written(x))
    assert torch.equal(model(x), plain)


class Inner(Base):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*self.heads(x)).transpose(1, 2).flatten(2)


class Outer(Plain):
    """Attention that is written out, with another module inside that attends too."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.inner(x))


def test_a_site_inside_a_written_out_one_keeps_its_own_attention_or_is_patched_too() -> None:
    model = nn.Sequential(Outer())
    x = torch.randn(B, N, E)
    plain = model(x)
    with pytest.raises(RequestError, match="patch both or the inner one only"):
        eureka.patch(model, "norm_softmax", layers="0")
    with eureka.patch(model, "softmax") as patched:
        assert [site.kind for site in patched.sites] == ["by_hand", "call"]
        torch.testing.assert_close(model(x), plain)
    with eureka.patch(model, "norm_softmax", layers="0.inner"):
        inner = Plain()
        with eureka.patch(inner, "norm_softmax"):
            torch.testing.assert_close(model(x), Plain.forward(model[0], inner(x)))  # type: ignore[arg-type]
