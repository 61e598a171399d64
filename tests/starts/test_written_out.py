"""Clear start of attention that is written out, as people write it: what softmax gets has the spread that was asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import eureka
from tests.starts.twins import BATCH, TOKENS, WORDS, changed, copy_of_mode, explicit_logits, ratio, spreads_of_logits, state

E, H = 16, 2
HIDDEN = -1e8
"""Logits below this are masked."""


class NanoGPT(nn.Module):
    """One layer for q, k and v; the fused function in one branch, a softmax in the other, a buffer as the causal mask."""

    def __init__(self, flash: bool = False) -> None:
        super().__init__()
        self.c_attn, self.c_proj, self.attn_dropout = nn.Linear(E, 3 * E), nn.Linear(E, E), nn.Dropout(0.5)
        self.n_head, self.flash = H, flash
        self.register_buffer("bias", torch.ones(32, 32).tril().view(1, 1, 32, 32))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.shape[1]
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.c_attn(x).split(E, dim=2))
        if self.flash:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            assert isinstance(self.bias, Tensor)
            att = att.masked_fill(self.bias[:, :, :tokens, :tokens] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        return self.c_proj(y.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Head(nn.Module):
    """One head of a lecture: three small layers, a comparison as the mask."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(E, E // H, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(torch.ones(x.shape[1], x.shape[1]).tril() == 0, float("-inf"))
        wei = F.softmax(wei, dim=-1)
        return wei @ self.value(x)  # type: ignore[no-any-return]


class Lecture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads, self.proj = nn.ModuleList(Head() for _ in range(H)), nn.Linear(E, E)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(torch.cat([head(x) for head in self.heads], dim=-1))  # type: ignore[no-any-return]


class AttendModule(nn.Module):
    """The softmax is a module; q, k and v are chunks of one layer without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.dropout, self.heads = nn.Softmax(dim=-1), nn.Dropout(0.1), H
        self.to_qkv, self.to_out = nn.Linear(E, 3 * E, bias=False), nn.Sequential(nn.Linear(E, E), nn.Dropout(0.1))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, dim=-1))
        attn = self.dropout(self.attend(torch.matmul(q, k.transpose(-1, -2)) * (E // H) ** -0.5))
        return self.to_out(torch.matmul(attn, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Einsum(nn.Module):
    """Tokens before heads, einsum for both products, a scale of one."""

    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(E, E) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (H, -1)) for layer in (self.wq, self.wk, self.wv))
        weights = torch.einsum("bqhd,bkhd->bhqk", q, k).softmax(dim=-1)
        return self.wo(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))  # type: ignore[no-any-return]


class Folded(nn.Module):
    """As in fairseq: q is scaled first, heads are folded into the batch, bmm."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(E, E) for _ in range(4))
        self.num_heads, self.dropout = H, 0.1

    def forward(self, x: Tensor) -> Tensor:
        samples, tokens, _ = x.shape

        def folded(y: Tensor) -> Tensor:
            return y.view(samples, tokens, H, -1).transpose(1, 2).reshape(samples * H, tokens, -1)

        q, k, v = folded(self.q_proj(x) * (E // H) ** -0.5), folded(self.k_proj(x)), folded(self.v_proj(x))
        weights = torch.bmm(q, k.transpose(1, 2)).view(samples, H, tokens, tokens) + torch.full((tokens, tokens), -1e9).triu(1)
        weights = F.dropout(F.softmax(weights.float(), dim=-1).type_as(q), p=self.dropout, training=self.training)
        mixed = torch.bmm(weights.view(samples * H, tokens, tokens), v)
        return self.out_proj(mixed.view(samples, H, tokens, -1).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class FoldedToTheEnd(nn.Module):
    """Heads are among the samples of the softmax too; tokens come first, or samples."""

    def __init__(self, *, tokens_first: bool) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(E, E) for _ in range(3))
        self.tokens_first = tokens_first

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.tokens_first else x.transpose(0, 1)
        tokens, samples, _ = x.shape
        q, k, v = (layer(x).view(tokens, samples * H, -1).transpose(0, 1) for layer in (self.q_proj, self.k_proj, self.v_proj))
        mixed = torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)) * (E // H) ** -0.5, dim=-1), v)
        mixed = mixed.transpose(0, 1).reshape(tokens, samples, -1)
        return mixed if self.tokens_first else mixed.transpose(0, 1)


class AddPlaces(nn.Module):
    def __init__(self, place: nn.Parameter) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        return x + self.place


class OneKey(nn.Module):
    """Two heads of queries that share one head of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.to_q, self.to_kv, self.out = nn.Linear(E, E), nn.Linear(E, 2 * (E // H)), nn.Linear(E, E)

    def forward(self, x: Tensor) -> Tensor:
        q = self.to_q(x).unflatten(-1, (H, -1)).transpose(1, 2)
        k, v = self.to_kv(x).chunk(2, dim=-1)
        weights = ((q / (E // H) ** 0.5) @ k.transpose(-2, -1)[:, None]).softmax(-1)
        return self.out((weights @ v[:, None]).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _attention(query: Tensor, key: Tensor, value: Tensor, dropout: nn.Module) -> Tensor:
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))
    return torch.matmul(dropout(scores.softmax(dim=-1)), value)


class ListOfLayers(nn.Module):
    """No layer has a name; a function of its own attends."""

    def __init__(self) -> None:
        super().__init__()
        self.linears, self.dropout = nn.ModuleList(nn.Linear(E, E) for _ in range(4)), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (H, -1)).transpose(1, 2) for layer in list(self.linears)[:3])
        return self.linears[3](_attention(q, k, v, self.dropout).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def _masked_softmax(scores: Tensor) -> Tensor:
    return nn.functional.softmax(scores, dim=-1)


class DotProduct(nn.Module):
    """Attention without a weight; its softmax is in a function, and what it knows of heads is nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.1)

    def forward(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        weights = _masked_softmax(torch.bmm(queries, keys.transpose(1, 2)) / math.sqrt(queries.shape[-1]))
        return torch.bmm(self.dropout(weights), values)


class Around(nn.Module):
    """The projections are in the module around it, and heads in the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.num_heads, self.inner = H, DotProduct()
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(E, E, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        parts = [layer(x).unflatten(-1, (H, -1)).transpose(1, 2).flatten(0, 1) for layer in (self.W_q, self.W_k, self.W_v)]
        return self.W_o(self.inner(*parts).unflatten(0, (-1, H)).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class BothScaled(nn.Module):
    """Queries and keys are scaled each; one layer makes both, dimension by dimension, and another one values."""

    def __init__(self) -> None:
        super().__init__()
        self.toqueries_and_keys, self.other = nn.Linear(E, 2 * E), nn.Linear(E, E)

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.toqueries_and_keys(x).unflatten(-1, (E // H, 2, H)).permute(3, 0, 4, 1, 2)
        v = self.other(x).unflatten(-1, (H, -1)).transpose(1, 2)
        dot = F.softmax((q / E**0.25) @ (k / E**0.25).transpose(-2, -1), dim=3)
        return (dot @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


class Tensors(nn.Module):
    """Weights of three axes: heads, inputs, dimensions; an einsum of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.randn(H, E, E // H) / E**0.5) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.einsum("bpd,hde->bphe", x, weight) for weight in (self.W_Q, self.W_K, self.W_V))
        pattern = (torch.einsum("bqhe,bkhe->bhqk", [q, k]) / (E // H) ** 0.5).softmax(dim=-1)
        return torch.einsum("bhqk,bkhe->bqhe", [pattern, v]).flatten(2)


class Model(nn.Module):
    def __init__(self, attention: Callable[[], nn.Module], blocks: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.places = nn.Embedding(WORDS, E), nn.Embedding(32, E)
        nn.init.normal_(self.places.weight, std=0.02)
        self.blocks = nn.ModuleList(attention() for _ in range(blocks))
        self.norms = nn.ModuleList(nn.LayerNorm(E) for _ in range(blocks))
        self.out = nn.Linear(E, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))
        return self.out(x)  # type: ignore[no-any-return]


def ids() -> Tensor:
    return torch.randint(WORDS, (BATCH, TOKENS), generator=torch.Generator().manual_seed(1))


class _Softened(TorchFunctionMode):
    """Keeps what every softmax gets."""

    def __init__(self) -> None:
        super().__init__()
        self.logits: list[Tensor] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (torch.softmax, F.softmax, Tensor.softmax):
            self.logits.append(args[0].detach().double())
        return func(*args, **(kwargs or {}))


def spreads(model: nn.Module) -> list[float]:
    """A slow twin: the spread of what softmax gets, row by row, head by head."""
    with _Softened() as seen, torch.no_grad():
        copy_of_mode(model, ids())
    found = []
    for logits in seen.logits:
        heads = logits.shape[0] // BATCH
        whole = logits if logits.dim() == 4 else logits.unflatten(0, (BATCH, heads))
        found += spreads_of_logits(whole, whole > HIDDEN)
    return found


WAYS: list[Callable[[], nn.Module]] = [
    *(NanoGPT, Lecture, AttendModule, Einsum, Folded, OneKey),
    *(ListOfLayers, Around, BothScaled, Tensors),
]


@pytest.mark.parametrize("attention", WAYS, ids=lambda cls: cls.__name__)
def test_what_softmax_gets_has_the_spread_that_was_asked(attention: Callable[[], nn.Module]) -> None:
    model = Model(attention)
    before, plain = state(model), copy_of_mode(model, ids())
    drawn = torch.get_rng_state()
    start = eureka.clear_start(model, ids(), logits=1.5)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert start.notes == ()
    assert spreads(model) == pytest.approx([1.5] * 2 * H, rel=0.01)
    assert ratio(model.places.weight[:TOKENS], model.words(ids()).detach()) == pytest.approx([1.0], rel=0.01)
    after = state(model)
    eureka.clear_start(model, ids(), logits=1.5)
    assert changed(model, after) == set()
    start.undo()
    assert changed(model, before) == set()
    assert torch.equal(copy_of_mode(model, ids()), plain)


@pytest.mark.parametrize("attention", WAYS, ids=lambda cls: cls.__name__)
def test_values_stay_as_they_were(attention: Callable[[], nn.Module]) -> None:
    """Weights that are all alike mix values to the same numbers as before."""
    model = attention().eval()
    x = torch.randn(BATCH, TOKENS, E)
    with torch.no_grad():
        wanted = _with_even_weights(model, x)
        eureka.clear_start(model, x, positions=None, logits=3.0)
        torch.testing.assert_close(_with_even_weights(model, x), wanted)


class _Even(TorchFunctionMode):
    """Every softmax gives the same weight to every key that is seen."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func in (torch.softmax, F.softmax, Tensor.softmax):
            seen = (args[0] > HIDDEN).float()
            return seen / seen.sum(dim=-1, keepdim=True)
        return func(*args, **(kwargs or {}))


def _with_even_weights(model: nn.Module, x: Tensor) -> Tensor:
    with _Even():
        return model(x)  # type: ignore[no-any-return]


def test_both_branches_of_one_module_start_alike() -> None:
    fused, written = Model(lambda: NanoGPT(flash=True)), Model(NanoGPT)
    starts = [eureka.clear_start(model, ids()) for model in (fused, written)]
    for one, other in zip(starts[0].logits, starts[1].logits, strict=True):
        assert one.before == pytest.approx(other.before, rel=1e-4)
    for parameter, same in zip(fused.parameters(), written.parameters(), strict=True):
        torch.testing.assert_close(parameter, same, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_precisions_start_as_asked(dtype: torch.dtype) -> None:
    model = Model(AttendModule).to(dtype)
    start = eureka.clear_start(model, ids())
    assert [spread for row in start.logits for spread in row.after] == pytest.approx([1.0] * 2 * H, rel=0.01)


@pytest.mark.parametrize("attention", WAYS, ids=lambda cls: cls.__name__)
def test_a_patch_and_a_probe_reach_it_too(attention: Callable[[], nn.Module]) -> None:
    model = Model(attention).eval()
    plain = model(ids())
    assert sum(len(site.values["entropy"]) for site in _looked(model)) == 2 * H
    with eureka.patch(model, "softmax"):
        torch.testing.assert_close(model(ids()), plain)
    with eureka.patch(model, "norm_softmax"):
        assert not torch.allclose(model(ids()), plain, atol=1e-3)
    assert torch.equal(model(ids()), plain)


def _looked(model: nn.Module) -> list[Any]:
    with eureka.AttentionProbe(model) as probe, probe.look():
        model(ids())
    return list(probe.records[0].sites)


class OneWeightForAllHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys, self.values = (nn.Linear(E // H, E // H, bias=False) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x.view(*x.shape[:2], H, -1)).transpose(1, 2) for layer in (self.queries, self.keys, self.values))
        return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def test_heads_that_share_one_weight_are_left_alone_with_a_note() -> None:
    (note,) = eureka.clear_start(Model(OneWeightForAllHeads), ids()).notes
    assert "are as they were: each has a W_Q of 8 rows, and 2 heads of 8 dimensions were seen; the spread is " in note


class SharedByUse(ListOfLayers):
    """The second layer makes keys and values."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.linears[i](x).unflatten(-1, (H, -1)).transpose(1, 2) for i in (0, 1, 1))
        return self.linears[3](_attention(q, k, v, self.dropout).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Normed(ListOfLayers):
    """Queries have a norm: they are in proportion to no weight."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (H, -1)).transpose(1, 2) for layer in list(self.linears)[:3])
        return self.linears[3](_attention(F.normalize(q, dim=-1), k, v, self.dropout).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


@pytest.mark.parametrize(("attention", "letter", "taken"), [(SharedByUse, "k", 0), (Normed, "q", 1)])
def test_where_no_matrix_makes_one_of_the_two_the_other_takes_the_whole_factor(
    attention: type[nn.Module], letter: str, taken: int
) -> None:
    model = Model(attention)
    before = state(model)
    start = eureka.clear_start(model, ids())
    (note,) = start.notes
    other = "K" if letter == "q" else "Q"
    why = f"each has no layer for W_{letter.upper()} by a usual name ("
    assert note.startswith(f"W_{other} of blocks.0 and blocks.1 takes the whole factor, because {why}")
    assert note.endswith(f"and no matrix whose rows make the features of {letter}.")
    own = {f"blocks.{block}.linears.{taken}.{part}" for block in (0, 1) for part in ("weight", "bias")}
    assert changed(model, before) == {"places.weight"} | own
    assert spreads(model) == pytest.approx([1.0] * 4, rel=0.01)


def test_a_weight_without_a_name_that_is_frozen_is_called_frozen_and_stays_so() -> None:
    model = Model(ListOfLayers)
    model.blocks[0].get_parameter("linears.0.weight").requires_grad_(False)
    (note,) = eureka.clear_start(model, ids()).notes
    assert note == "W_K of blocks.0 takes the whole factor, because it has a W_Q that is frozen."
    assert {name for name, one in model.named_parameters() if not one.requires_grad} == {"blocks.0.linears.0.weight"}
    assert all(one.grad is None for one in model.parameters())
    assert spreads(model) == pytest.approx([1.0] * 4, rel=0.01)


class Turned(nn.Module):
    """Rotary positions, heads that lie across each other, and no usual name."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = (nn.Linear(E, E) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (-1, H)).permute(0, 3, 1, 2) for layer in (self.one, self.two, self.three))
        angles = torch.arange(x.shape[1])[:, None] * torch.logspace(0, -2, q.shape[-1] // 2)
        q, k = (_rotated(part, angles.cos().to(x.dtype), angles.sin().to(x.dtype)) for part in (q, k))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, two = x.chunk(2, dim=-1)
    return torch.cat([one * cos - two * sin, one * sin + two * cos], dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_weights_behind_rotary_positions_are_found_by_the_heads_that_they_make(dtype: torch.dtype) -> None:
    model = Model(Turned).to(dtype)
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert start.notes == ()
    parts = {f"blocks.{block}.{name}.{part}" for block in (0, 1) for name in ("one", "two") for part in ("weight", "bias")}
    assert changed(model, before) == {"places.weight"} | parts
    assert [spread for row in start.logits for spread in row.after] == pytest.approx([1.0] * 4, rel=0.01)
    start.undo()
    assert changed(model, before) == set()


class Router(nn.Module):
    """A softmax and a product, but no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(E, 4), nn.Parameter(torch.randn(4, E, E) / E**0.5)

    def forward(self, x: Tensor) -> Tensor:
        gates = self.gate(x).softmax(-1)
        return (torch.einsum("bnd,kde->bnke", x, self.experts) * gates[..., None]).sum(2)  # type: ignore[no-any-return]


def test_a_router_is_no_site_and_does_not_hinder_a_patch() -> None:
    model = Model(AttendModule)
    model.norms[0] = Router()
    assert [site.name for site in eureka.patch(model, "norm_softmax").sites] == ["blocks.0", "blocks.1"]
    assert model(ids()).isfinite().all()


class KeysAsValues(Head):
    def forward(self, x: Tensor) -> Tensor:
        k, q = self.key(x), self.query(x)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ k  # type: ignore[no-any-return]


class ValuesOfKeys(Head):
    def forward(self, x: Tensor) -> Tensor:
        k, q = self.key(x), self.query(x)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ self.value(F.pad(k, (0, E // H)))  # type: ignore[no-any-return]


class KeysOnceMore(Head):
    def forward(self, x: Tensor) -> Tensor:
        return (self.query(x) @ self.key(x).transpose(-2, -1)).softmax(-1) @ self.key(x)  # type: ignore[no-any-return]


class Residual(Head):
    """As in the Set Transformer."""

    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x)
        return q + (q @ self.key(x).transpose(-2, -1)).softmax(-1) @ self.value(x)  # type: ignore[no-any-return]


class Gate(Head):
    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x)
        return q.sigmoid() * ((q @ self.key(x).transpose(-2, -1)).softmax(-1) @ self.value(x))  # type: ignore[no-any-return]


class FusedResidual(Residual):
    def forward(self, x: Tensor) -> Tensor:
        q = self.query(x)
        return q + F.scaled_dot_product_attention(q, self.key(x), self.value(x))  # type: ignore[no-any-return]


class SecondOutput(Head):
    """Its queries come out too, for a gate that is elsewhere."""

    def forward(self, x: Tensor) -> Any:
        q = self.query(x)
        return {"out": (q @ self.key(x).transpose(-2, -1)).softmax(-1) @ self.value(x), "gate": q}


class Gated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = SecondOutput()

    def forward(self, x: Tensor) -> Tensor:
        found = self.inner(x)
        return found["gate"].sigmoid() * found["out"]  # type: ignore[no-any-return]


def test_queries_that_come_out_of_the_module_too_are_left_to_keys() -> None:
    model = Model(lambda: _padded(Gated()))
    before = state(model)
    (note,) = eureka.clear_start(model, ids()).notes
    assert note.startswith(
        "W_K of blocks.0.0.inner and blocks.1.0.inner takes the whole factor, because each has a W_Q that makes"
    )
    assert changed(model, before) == {"places.weight", "blocks.0.0.inner.key.weight", "blocks.1.0.inner.key.weight"}
    assert spreads(model) == pytest.approx([1.0] * 2, rel=0.01)


@pytest.mark.parametrize("attention", [KeysAsValues, ValuesOfKeys, KeysOnceMore, Residual, Gate, FusedResidual])
def test_where_a_named_weight_makes_more_than_queries_or_keys_the_other_takes_the_whole_factor(
    attention: type[nn.Module],
) -> None:
    model = Model(lambda: _padded(attention()))
    before, x = state(model), torch.randn(2, 5, E)
    even = _with_even_weights(model.blocks[0], x)
    start = eureka.clear_start(model, ids())
    (note,) = start.notes
    by_keys = issubclass(attention, Residual | Gate)
    assert note.startswith(f"W_{'K' if by_keys else 'Q'} of blocks.0.0 and blocks.1.0 takes the whole factor, because each ")
    assert "that makes more than" in note or "uses its keys as values" in note
    taken = "key" if by_keys else "query"
    assert changed(model, before) == {"places.weight", f"blocks.0.0.{taken}.weight", f"blocks.1.0.{taken}.weight"}
    assert [row.after[0] for row in start.logits] == pytest.approx([1.0] * 2, rel=0.01)
    assert spreads(model) == pytest.approx([1.0] * (0 if attention is FusedResidual else 2), rel=0.01)
    assert (
        torch.equal(_with_even_weights(model.blocks[0], x), even) or attention is FusedResidual
    )  # values, gate and residual are as they were


class Draws(Head):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.rand_like(x[..., : self.value.out_features])


def test_a_module_that_draws_is_asked_with_the_same_draws() -> None:
    model = Model(lambda: _padded(Draws()))
    start = eureka.clear_start(model, ids())
    assert not start.notes
    assert len(start.logits) == 2


class Counts(Head):
    """It comes out otherwise with each call."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) + 0.003 * self.calls


class Pops(Head):
    handed: list[float]

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.handed.pop()


class Hands(nn.Module):
    """It hands something to its attention that can be taken once."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Pops()

    def forward(self, x: Tensor) -> Tensor:
        self.inner.handed = [1.0]
        return self.inner(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("attention", [Counts, Hands])
def test_a_module_that_does_not_run_twice_alike_is_rescaled_and_marked(attention: type[nn.Module]) -> None:
    model = Model(lambda: _padded(attention()))
    start = eureka.clear_start(model, ids(), positions=None, logits=2.0)
    first, second = (row.site for row in start.logits)
    (note,) = start.notes
    assert note.startswith(f"whether W_Q and W_K of {first} and {second} make anything but q and k could not be checked: ")
    assert [row.after[0] for row in start.logits] == pytest.approx([2.0, 2.0], rel=0.01)


class HeadsFirst(Folded):
    """Heads are folded before the batch, so that those that it seems to have are mixtures."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (torch.cat(layer(x).chunk(H, dim=-1)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        mixed = torch.bmm(F.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1), v)
        return torch.cat(mixed.chunk(H), dim=-1)


def test_heads_that_lie_across_samples_are_left_alone_with_a_note() -> None:
    (note,) = eureka.clear_start(Model(HeadsFirst), ids()).notes
    assert note.startswith(
        "the logits of blocks.0 and blocks.1 are as they were: each has heads whose rows could not be told apart;"
    )


@pytest.mark.parametrize(("tokens", "tokens_first"), [(5, True), (5, False), (6, False)])
def test_heads_among_the_samples_do_not_hide_which_axis_has_the_tokens(tokens: int, tokens_first: bool) -> None:
    torch.manual_seed(0)
    content, place = torch.randn(3, tokens, E), nn.Parameter(0.02 * torch.randn(1, tokens, E))
    model = nn.Sequential(AddPlaces(place), FoldedToTheEnd(tokens_first=tokens_first))
    if tokens_first:
        content, place.data = content.transpose(0, 1), place.data.transpose(0, 1)
    eureka.clear_start(model, content)
    assert ratio(place.detach(), content) == pytest.approx([1.0], rel=0.01)


class OutputBias(nn.Module):
    """The only bias of its own is that of the output."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix, self.bias = nn.Parameter(torch.randn(E, E) / E**0.5), nn.Parameter(torch.randn(E))
        self.others = nn.ModuleList(nn.Linear(E, E) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = x @ self.matrix, self.others[0](x), self.others[1](x)
        return (q @ k.transpose(-2, -1)).softmax(-1) @ v + self.bias  # type: ignore[no-any-return]


def test_the_weight_of_the_queries_does_not_take_along_the_bias_of_the_output() -> None:
    model = Model(OutputBias)
    before = state(model)
    assert eureka.clear_start(model, ids()).notes == ()
    assert spreads(model) == pytest.approx([1.0, 1.0], rel=0.01)
    scaled = {name.removeprefix("blocks.0.") for name in changed(model, before) if name.startswith("blocks.0.")}
    assert scaled == {"matrix", "others.0.weight", "others.0.bias"}


class Written(Head):
    """Its logits are written to in some way, after they were computed."""

    def __init__(self, write: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        logits = self.query(x) @ self.key(x).transpose(-2, -1)
        self.write(logits)
        return logits.softmax(-1) @ self.value(x)  # type: ignore[no-any-return]


def _hide_one_key(logits: Tensor) -> None:
    logits.view(-1, TOKENS)[:, 3] = float("-inf")


@pytest.mark.parametrize("write", [lambda x: x.diagonal(dim1=-2, dim2=-1).fill_(float("-inf")), _hide_one_key])
def test_keys_that_are_hidden_through_a_view_do_not_count(write: Callable[[Tensor], object]) -> None:
    model = Model(lambda: _padded(Written(write)))
    eureka.clear_start(model, ids())
    assert spreads(model) == pytest.approx([1.0, 1.0], rel=0.01)


def test_logits_that_are_written_over_are_not_followed() -> None:
    model = Model(lambda: _padded(Written(lambda x: x.mul_(3.0).tanh_())))
    (note,) = eureka.clear_start(model, ids()).notes
    assert "takes its softmax in a way that could not be followed" in note


class Additive(nn.Module):
    """Attention by a sum of query and keys, as in the tutorial of sequence-to-sequence models."""

    def __init__(self) -> None:
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(E, E), nn.Linear(E, E), nn.Linear(E, 1)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        weights = F.softmax(self.Va(torch.tanh(self.Wa(query) + self.Ua(keys))).transpose(1, 2), dim=-1)
        return torch.bmm(weights, keys)


class Pooled(Model):
    def __init__(self) -> None:
        super().__init__(AttendModule)
        self.pool = Additive()

    def forward(self, ids: Tensor) -> Tensor:
        x = super().forward(ids)[..., :E]
        return self.pool(x.mean(dim=1, keepdim=True), x)  # type: ignore[no-any-return]


def test_a_module_known_by_its_variables_alone_is_no_site_beside_surer_ones() -> None:
    model = Pooled()
    assert [site.name for site in eureka.patch(model, "norm_softmax").sites] == ["blocks.0", "blocks.1"]
    assert model(ids()).isfinite().all()


class TalkingHeads(AttendModule):
    """Weights of heads are mixed before they reach the values."""

    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv2d(H, H, 1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in self.to_qkv(x).chunk(3, dim=-1))
        attn = self.mix(self.attend(torch.matmul(q, k.transpose(-1, -2)) * (E // H) ** -0.5))
        return self.to_out(torch.matmul(attn, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_values_that_cannot_be_followed_do_not_hinder_it() -> None:
    model = Model(TalkingHeads)
    assert eureka.clear_start(model, ids()).notes == ()
    assert spreads(model) == pytest.approx([1.0] * 2 * H, rel=0.01)


def test_of_many_sites_a_note_names_the_first_few() -> None:
    (note,) = eureka.clear_start(Model(OneWeightForAllHeads, blocks=7), ids()).notes
    assert note.startswith("the logits of blocks.0, blocks.1, blocks.2, blocks.3 and 3 more are as they were: each has a W_Q")


class Inline(nn.Module):
    """Embeds, adds positions and attends, all in one module."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places, self.qkv = (
            nn.Embedding(WORDS, E),
            nn.Parameter(0.02 * torch.randn(TOKENS, E)),
            nn.Linear(E, 3 * E),
        )

    def forward(self, ids: Tensor) -> Tensor:
        q, k, v = self.qkv(self.words(ids) + self.places).unflatten(-1, (3, H, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def test_positions_are_found_inside_an_attention_that_embeds_with_a_layer_behind_it() -> None:
    torch.manual_seed(0)
    start = eureka.clear_start(nn.Sequential(Inline(), nn.Linear(E, 3)), ids())
    assert [row.parameters for row in start.positions] == [("0.places",)]
    assert start.notes == ()


def _padded(head: nn.Module) -> nn.Module:
    return nn.Sequential(head, nn.Linear(E // H, E))


class Windows(nn.Module):
    """Heads behind the samples, windows behind the heads; written out or fused."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.num_heads, self.head_dim, self.fused, self.qkv = H, E // H, fused, nn.Linear(E, 3 * E)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(len(x), 3, 3, 3, H, -1).permute(3, 0, 4, 1, 2, 5)
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            mixed = (q @ k.transpose(-2, -1) * (E // H) ** -0.5).softmax(-1) @ v
        return mixed.permute(0, 2, 3, 1, 4).reshape(x.shape)


@pytest.mark.parametrize("fused", [True, False])
def test_heads_before_windows_are_heads(fused: bool) -> None:
    model = Model(lambda: Windows(fused)).eval()
    plain = model(ids())
    assert [len(site.values["entropy"]) for site in _looked(model)] == [H, H]
    assert torch.equal(model(ids()), plain)
    for fix in ("softmax", "learnable_temperature"):
        with eureka.patch(model, fix):
            torch.testing.assert_close(model(ids()), plain)
    start = eureka.clear_start(model, ids())
    assert start.notes == ()
    assert [row.heads for row in start.logits] == [H, H]
    q, k, _ = model.blocks[0].qkv(model.norms[0](model.words(ids()) + model.places.weight[:TOKENS])).chunk(3, dim=-1)  # type: ignore[operator]
    q, k = (part.detach().double().view(BATCH * 3, 3, H, -1).transpose(1, 2) for part in (q, k))
    assert explicit_logits(q, k, causal=False) == pytest.approx([1.0] * H, rel=0.01)
