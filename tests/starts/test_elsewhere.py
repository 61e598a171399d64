"""W_Q and W_K that something else in the model uses too, and positions that are content too: they stay as they were."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from tests.starts.twins import changed, explicit_logits, state

DIM, HEADS, TOKENS = 16, 2, 7


class Attend(nn.Module):
    def __init__(self, dim: int = DIM) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.even = False
        self.spreads: list[float] = []

    def mixed(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = (part.view(*part.shape[:2], HEADS, -1).transpose(1, 2) for part in (q, k, v))
        self.spreads = explicit_logits(q.detach().double(), k.detach().double(), causal=False)
        mixed = v.mean(dim=2, keepdim=True).expand_as(v) if self.even else F.scaled_dot_product_attention(q, k, v)
        return mixed.transpose(1, 2).flatten(2)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mixed(self.q(x), self.k(x), self.v(x)))  # type: ignore[no-any-return]


class Layers(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def keys_are_values_of_the_next() -> nn.Module:
    first, second = Attend(), Attend()
    second.v = first.k
    return Layers(first, second)


def keys_are_the_output_of_the_next() -> nn.Module:
    first, second = Attend(), Attend()
    second.out = first.k
    return Layers(first, second)


class Tied(nn.Module):
    """Another layer has the weight of W_Q."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.mlp = Attend(), nn.Linear(DIM, DIM, bias=False)
        self.mlp.weight = self.attend.q.weight

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attend(x)
        return x + self.mlp(x)  # type: ignore[no-any-return]


class CalledOutside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attend = Attend()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attend(x) + self.attend.q(x)  # type: ignore[no-any-return]


class SmallGate(Attend):
    """A gate by q in a branch that is far smaller than the residual beside it."""

    def __init__(self) -> None:
        super().__init__()
        for layer in (self.q, self.k, self.v, self.out):
            nn.init.normal_(layer.weight, std=0.03)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x)
        return x + self.out(self.mixed(q, self.k(x), self.v(x)) * q.sigmoid())  # type: ignore[no-any-return]


class SilentOutput(Attend):
    """Values are made of keys, and W_O is zero at first."""

    def __init__(self) -> None:
        super().__init__()
        nn.init.zeros_(self.out.weight)

    def forward(self, x: Tensor) -> Tensor:
        k = self.k(x)
        return self.out(self.mixed(self.q(x), k, self.v(k)))  # type: ignore[no-any-return]


class IdleLayer(nn.Module):
    """A layer that is not called on these inputs has the same W_K."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = Attend(), Attend()
        self.other.k = self.one.k

    def forward(self, x: Tensor, both: bool = False) -> Tensor:
        x = x + self.one(x)
        return x + self.other(x) if both else x


CASES: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "W_K is W_V of the next layer": (keys_are_values_of_the_next, "k"),
    "W_K is W_O of the next layer": (keys_are_the_output_of_the_next, "k"),
    "W_Q is the weight of a linear layer": (Tied, "q"),
    "the block calls W_Q itself": (CalledOutside, "q"),
    "a small gate beside the residual": (lambda: Layers(SmallGate()), "q"),
    "values of keys behind a W_O of zero": (lambda: Layers(SilentOutput()), "k"),
    "an idle layer shares W_K": (IdleLayer, "k"),
}


def _with_even_weights(model: nn.Module, x: Tensor) -> Tensor:
    attends = [module for module in model.modules() if isinstance(module, Attend)]
    for attend in attends:
        attend.even = True
    with torch.no_grad():
        out: Tensor = model(x)
    for attend in attends:
        attend.even = False
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", list(CASES))
def test_a_weight_that_something_else_uses_stays_and_the_other_takes_the_whole_factor(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make, letter = CASES[name]
    model, x = make().to(dtype), torch.randn(6, TOKENS, DIM, dtype=dtype)
    before, even = state(model), _with_even_weights(model, x)
    start = eureka.clear_start(model, x, positions=None)
    taken = "W_Q" if letter == "k" else "W_K"
    assert any(note.startswith(f"{taken} of ") and "takes the whole factor, because" in note for note in start.notes)
    assert torch.equal(_with_even_weights(model, x), even)
    with torch.no_grad():
        model(x)
    found = [spread for module in model.modules() if isinstance(module, Attend) for spread in module.spreads]
    assert found == pytest.approx([1.0] * len(found), rel=0.01)
    assert len(found) == sum(row.heads for row in start.logits)
    once = state(model)
    eureka.clear_start(model, x, positions=None)
    assert changed(model, once) == set()
    start.undo()
    assert changed(model, before) == set()


def test_a_weight_that_nothing_else_uses_is_rescaled_without_a_note() -> None:
    torch.manual_seed(0)
    model = Layers(Attend(), Attend())
    start = eureka.clear_start(model, torch.randn(6, TOKENS, DIM), positions=None)
    assert start.notes == ()


class UnusedKeys(Attend):
    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mixed(self.q(x), x, self.v(x)))  # type: ignore[no-any-return]


def test_a_weight_that_makes_nothing_is_not_called_normed() -> None:
    torch.manual_seed(0)
    (note,) = eureka.clear_start(Layers(UnusedKeys()), torch.randn(6, TOKENS, DIM), positions=None).notes
    assert note == "W_Q of layers.0 takes the whole factor, because it has a W_K that does not make k."


class Sharing(nn.Module):
    """Content that is no lookup goes through the layer that positions go through, or is multiplied by them."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.embed, self.places, self.attend = nn.Linear(DIM, DIM), nn.Parameter(0.02 * torch.randn(TOKENS, DIM)), Attend()

    def forward(self, x: Tensor) -> Tensor:
        content: Tensor = self.embed(x)
        places: Tensor = self.places
        if self.way == "one layer":
            places = self.embed(places)
        if self.way == "a factor":
            content = content * (1 + places)
        if self.way == "computed sines":
            places = places + torch.arange(1.0, TOKENS + 1)[:, None].mul(torch.linspace(0.1, 1, DIM)).sin()
        return self.attend(content + places)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("one layer", "content is made of them too"),
        ("a factor", "content is made of it too"),
        ("computed sines", "they do not reach the content in proportion: a norm or a product stands between, or something is"),
    ],
)
def test_positions_that_are_not_only_positions_are_left_alone_with_a_note(way: str, why: str) -> None:
    torch.manual_seed(0)
    model = Sharing(way)
    before = state(model)
    start = eureka.clear_start(model, torch.randn(6, TOKENS, DIM))
    assert start.positions == ()
    assert why in start.notes[0]
    assert changed(model, before) == {"attend.q.weight", "attend.k.weight"}
    plain = Sharing("")
    assert [row.parameters for row in eureka.clear_start(plain, torch.randn(6, TOKENS, DIM)).positions] == [("places",)]


class Temperature(nn.Module):
    """A factor for each head, and no usual names."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((HEADS, 1, features), 2.0))
        self.one, self.two, self.three = (nn.Linear(DIM, DIM) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for layer in (self.one, self.two, self.three))
        return F.scaled_dot_product_attention(self.factor * q, k, v).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("features", [1, DIM // HEADS])
def test_a_temperature_for_each_head_or_feature_is_not_taken_for_a_weight(features: int) -> None:
    torch.manual_seed(0)
    model = Temperature(features)
    before = state(model)
    start = eureka.clear_start(model, torch.randn(6, TOKENS, DIM), positions=None)
    assert start.notes == ()
    assert changed(model, before) == {f"{name}.{part}" for name in ("one", "two") for part in ("weight", "bias")}
    assert start.logits[0].after == pytest.approx([1.0] * HEADS, rel=0.01)


class Cached(nn.Module):
    """Two query heads share each key head; what the model gives has the keys and values of each layer, for a cache."""

    def __init__(self, *, turned: bool, gated: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(GivesKeys(turned) for _ in range(2))
        self.gated = gated

    def forward(self, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        cache = []
        for layer in self.layers:
            mixed, (k, v) = layer(x)
            x = x + (mixed * k.mean() if self.gated else mixed)
            cache.append((k, v))
        return x, cache


class GivesKeys(nn.Module):
    def __init__(self, turned: bool) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM // 2), nn.Linear(DIM, DIM // 2)
        self.turned = turned

    def forward(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        q, k, v = (layer(x).unflatten(-1, (-1, DIM // 4)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k.repeat_interleave(2, dim=1), v.repeat_interleave(2, dim=1))
        return mixed.transpose(1, 2).flatten(2), ((k.transpose(1, 2), v.transpose(1, 2)) if self.turned else (k, v))


@pytest.mark.parametrize("turned", [False, True])
def test_keys_that_a_model_gives_for_a_cache_are_rescaled_with_a_note(turned: bool) -> None:
    torch.manual_seed(0)
    model, x = Cached(turned=turned, gated=False), torch.randn(6, TOKENS, DIM)
    before = state(model)
    start = eureka.clear_start(model, x, positions=None)
    (note,) = start.notes
    assert note == "the keys of layers.0 and layers.1 are among what the model gives, as for a cache; they grow with W_K."
    assert {name.split(".")[2] for name in changed(model, before)} == {"q", "k"}
    assert [spread for row in start.logits for spread in row.after] == pytest.approx([1.0] * 8, rel=0.01)


def test_keys_that_a_module_gives_and_a_block_uses_stay() -> None:
    torch.manual_seed(0)
    model, x = Cached(turned=False, gated=True), torch.randn(6, TOKENS, DIM)
    before = state(model)
    start = eureka.clear_start(model, x, positions=None)
    assert start.notes[0].startswith("W_Q of layers.0 and layers.1 takes the whole factor, because each has a W_K that something")
    assert {name.split(".")[2] for name in changed(model, before)} == {"q"}
