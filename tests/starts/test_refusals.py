"""What a clear start cannot do, and what it says then."""

from __future__ import annotations

import math
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.errors import RequestError
from tests.starts.twins import (
    BATCH,
    CASES,
    TOKENS,
    WORDS,
    FusedAttention,
    Grouped,
    HomeMade,
    changed,
    check_against_twins,
    features,
    ids,
    refusal,
    state,
)


class RMSNorm(nn.Module):
    """Its gain has a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.g = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return x / x.square().mean(-1, keepdim=True).sqrt() * self.g


def test_a_trained_norm_of_ones_own_is_a_sign_of_training_whatever_its_gain_is_called() -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(RMSNorm(), nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)), torch.randn(3, 5, 16)
    eureka.clear_start(model, x, positions=None).undo()
    norm = model[0]
    assert isinstance(norm, RMSNorm)
    with torch.no_grad():
        norm.g[0] = 1.01
    assert "looks trained: the g of 0 goes from 1 to 1.01" in refusal(model, x, positions=None)


def test_a_trained_model_is_refused_unless_asked() -> None:
    model, inputs = CASES["torch.nn"].made()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(inputs).square().mean().backward()
    optimiser.step()
    message = refusal(model, inputs)
    assert "looks trained: the weight of body.layers.0.norm1 goes from" in message
    assert "pass trained=True" in message
    eureka.clear_start(model, inputs, trained=True)
    check_against_twins(CASES["torch.nn"], model, inputs, 1.0, 1.0)


class NormedAttention(FusedAttention):
    """A norm stands between W_Q and the logits."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = F.layer_norm(q, q.shape[-1:]), F.layer_norm(k, k.shape[-1:])
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_weights_with_a_norm_behind_them_are_left_alone_with_a_note() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = NormedAttention()
    before = state(model)
    start = eureka.clear_start(model, ids(), logits=0.5)
    (note,) = start.notes
    assert note.startswith("the logits of blocks.1 are as they were: it norms q behind W_Q, so that no factor of W_Q changes its")
    assert [row.site for row in start.logits] == ["blocks.0"]
    assert changed(model, before) == {"places.weight", "blocks.0.qkv.weight", "blocks.0.qkv.bias"}


def test_weights_that_layers_share_are_left_alone_with_a_note() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = model.blocks[0]
    before = state(model)
    (note,) = eureka.clear_start(model, ids()).notes
    assert note.startswith("the logits of blocks.0 are as they were: it has a spread of ")
    assert "layers share them, it attends several times" in note
    assert changed(model, before) == {"places.weight"}


def test_a_layer_that_shares_a_weight_with_one_that_cannot_be_rescaled_is_left_alone_too() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks.append(FusedAttention())
    model.norms.append(nn.LayerNorm(16))
    model.blocks[1].qkv.weight = model.blocks[0].qkv.weight  # type: ignore[union-attr]
    before = state(model)
    start = eureka.clear_start(model, ids())
    first, second = start.notes
    assert {first.split()[3], second.split()[3]} == {"blocks.0", "blocks.1"}
    assert "it shares W_Q or W_K with another that cannot be rescaled; the spread is " in first + second
    assert changed(model, before) == {"places.weight", "blocks.2.qkv.weight", "blocks.2.qkv.bias"}
    assert start.logits[0].after == pytest.approx([1.0] * 2, rel=0.01)


def test_a_weight_that_gates_elsewhere_is_left_alone_too() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = GatedByQueries()
    model.blocks[1].qkv.weight = model.blocks[0].qkv.weight  # type: ignore[union-attr]
    before = state(model)
    first, second = eureka.clear_start(model, ids()).notes
    assert "blocks.1 are as they were: it has a W_Q that makes more than q" in first + second
    assert "blocks.0 are as they were: it has a W_Q that something else uses too, or q does more than attend" in first + second
    assert changed(model, before) == {"places.weight"}


class Biased(FusedAttention):
    """Something is added to the queries that is far larger than they are, as in Transformer-XL."""

    def __init__(self) -> None:
        super().__init__()
        self.more = nn.Parameter(torch.randn(self.heads, 1, 16 // self.heads) * 5)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q + self.more, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_what_is_added_to_queries_is_not_taken_for_a_norm() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = Biased()
    start = eureka.clear_start(model, ids())
    assert start.notes == ()
    assert [spread for row in start.logits for spread in row.after] == pytest.approx([1.0] * 4, rel=0.01)


class GatedByQueries(FusedAttention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out((q.sigmoid() * F.scaled_dot_product_attention(q, k, v)).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class KeysAreValues(FusedAttention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, _ = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_keys_that_are_values_too_stay_and_queries_take_the_whole_factor() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = KeysAreValues()
    weight = model.get_parameter("blocks.1.qkv.weight")
    before = weight.detach().clone()
    start = eureka.clear_start(model, ids())
    assert start.notes == (
        "W_Q of blocks.1 takes the whole factor, because it uses its keys as values, which would be scaled too.",
    )
    assert [spread for row in start.logits for spread in row.after] == pytest.approx([1.0] * 4, rel=0.01)
    assert torch.equal(weight[16:], before[16:])
    assert not torch.equal(weight[:16], before[:16])


class GatedGroups(Grouped):
    """Queries gate; two of them share a key."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        mixed = F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.out((q.sigmoid() * mixed).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_keys_alone_cannot_give_each_of_several_query_heads_its_factor() -> None:
    torch.manual_seed(0)
    message = refusal(GatedGroups(), features(BATCH, TOKENS, 16), positions=None)
    assert message.startswith("W_Q and W_K of GatedGroups cannot be rescaled: GatedGroups has a W_Q that makes more than q")


def test_a_weight_that_is_shared_with_a_site_that_is_left_alone_stays_too() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += self.q.weight.requires_grad is False
            q, k, v = (layer(x).unflatten(-1, (2, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) * (1 + self.calls)

    torch.manual_seed(0)
    model = nn.Sequential(Counting(), Counting())
    model[1].k = model[0].k
    model[1].q.requires_grad_(False)
    before = state(model)
    (first, second) = eureka.clear_start(model, features(BATCH, TOKENS, 16), positions=None).notes
    assert first.startswith("the logits of 1 are as they were: it has a W_Q that is frozen")
    assert second == "W_Q of 0 takes the whole factor, because it shares W_Q or W_K with another that cannot be rescaled."
    assert changed(model, before) == {"0.q.weight", "0.q.bias"}


def test_where_the_module_cannot_be_asked_neither_takes_the_factor_of_the_other() -> None:
    class Counting(FusedAttention):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    torch.manual_seed(0)
    model = HomeMade()
    block = Counting()
    model.blocks[1] = block
    block.qkv.bias.requires_grad_(False)
    before = state(model)
    eureka.clear_start(model, ids())
    assert not any(name.startswith("blocks.1") for name in changed(model, before))


def test_a_model_without_values_is_refused() -> None:
    with torch.device("meta"):
        model = HomeMade()
    with pytest.raises(RequestError, match=r"words.weight of HomeMade has no values yet"):
        eureka.clear_start(model, ids())
    lazy = HomeMade()
    lazy.blocks[0].qkv = nn.LazyLinear(48)
    with pytest.raises(RequestError, match=r"blocks.0.qkv.weight of HomeMade has no values yet \(meta or lazy\)"):
        eureka.clear_start(lazy, ids())


@pytest.mark.parametrize("shape", [(0, TOKENS), (BATCH, 0)])
def test_an_empty_batch_is_refused(shape: tuple[int, int]) -> None:
    message = refusal(HomeMade(), {"ids": torch.zeros(shape, dtype=torch.long)})
    assert message == f"the inputs hold a tensor of shape {shape}; pass a batch with a sample or more."


def test_a_tensor_without_features_is_no_empty_batch() -> None:
    class WithFeatures(HomeMade):
        def forward(self, ids: Tensor, features: Tensor | None = None) -> Tensor:
            return super().forward(ids)

    torch.manual_seed(0)
    start = eureka.clear_start(WithFeatures(), {"ids": ids(), "features": torch.zeros(BATCH, TOKENS, 0)})
    assert [row.parameters for row in start.positions] == [("places.weight",)]


class Unreached(HomeMade):
    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids)  # type: ignore[no-any-return]


def test_a_model_that_does_not_attend_on_these_inputs_is_refused() -> None:
    assert "no attention call of Unreached was seen" in refusal(Unreached(), ids())
    assert "no attention call of Unreached was seen" in refusal(Unreached(), ids(), logits=None)


def test_heads_without_spread_are_left_alone_with_a_note() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    nn.init.zeros_(model.get_parameter("blocks.1.qkv.weight"))
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert start.notes[0].startswith(
        "the logits of blocks.1 are as they were: it has logits without any spread on this batch (head 0)"
    )
    assert [row.site for row in start.logits] == ["blocks.0"]
    assert changed(model, before) == {"places.weight", "blocks.0.qkv.weight", "blocks.0.qkv.bias"}


def test_a_model_without_any_spread_is_refused() -> None:
    torch.manual_seed(0)
    assert "blocks.0 has logits without any spread on this batch (head 0)" in refusal(HomeMade(), ids()[:, :1], positions=None)
    behind, inputs = CASES["torch.nn"].made()
    inputs[0, 0, 0] = math.nan
    assert "or values are not finite" in refusal(behind, inputs)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"positions": None, "logits": None}, "leave nothing to do"),
        ({"positions": 0.0}, "positions is a number from 1e-06 to 1e+06, or None, not 0.0."),
        ({"positions": "1"}, "positions is a number from 1e-06 to 1e+06, or None, not '1'."),
        ({"positions": True}, "positions is a number from 1e-06 to 1e+06, or None, not True."),
        ({"positions": 1e30}, "positions is a number from 1e-06 to 1e+06, or None, not 1e+30."),
        ({"logits": math.nan}, "logits is a number from 1e-06 to 1e+06, or None, not nan."),
        ({"logits": [1.0, 1.0]}, "logits is a number from 1e-06 to 1e+06, or None, not [1.0, 1.0]."),
        ({"logits": 1e30}, "logits is a number from 1e-06 to 1e+06, or None, not 1e+30."),
        ({"seed": "a"}, "seed is a whole number from 0 to 2**63 - 1, not 'a'."),
    ],
)
def test_requests_that_mean_nothing_are_refused(asked: dict[str, Any], message: str) -> None:
    assert message in refusal(HomeMade(), ids(), **asked)


@pytest.mark.parametrize("asked", [{"positions": 1e6, "logits": 1e6}, {"positions": 1e-6, "logits": 1e-6}])
def test_the_largest_and_the_least_request_are_met(asked: dict[str, float]) -> None:
    torch.manual_seed(0)
    start = eureka.clear_start(HomeMade(), ids(), **asked)  # type: ignore[arg-type]
    assert [row.after for row in start.positions] == pytest.approx([asked["positions"]], rel=0.01)
    assert [spread for row in start.logits for spread in row.after] == pytest.approx([asked["logits"]] * 4, rel=0.01)


@pytest.mark.parametrize(
    ("inputs", "given"),
    [
        ((ids(), ids()), "a tuple of 2 was passed as the only argument"),
        ([ids(), ids()], "a list of 2 was passed as the only argument"),
        (ids().numpy(), "an object of type ndarray was passed as the only argument"),
        (None, "None was passed as the only argument"),
        ({"words": ids()}, "a mapping of 'words' was passed by keyword"),
        (ids() + WORDS, "a tensor of shape (6, 9) was passed as the only argument"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_refused_with_its_own_error(inputs: Any, given: str) -> None:
    message = refusal(HomeMade(), inputs)
    assert message.startswith("a pass of HomeMade over these inputs failed (")
    assert message.endswith(f"); {given}: give what its forward takes, a tensor or a mapping of keywords.")
    with pytest.raises(RequestError, match="a pass of HomeMade over these inputs failed"):
        eureka.position_share(HomeMade(), inputs)


def test_what_is_no_module_is_refused() -> None:
    for function in (eureka.clear_start, eureka.position_share):
        with pytest.raises(RequestError, match="not an object of type str; give the module itself"):
            function(cast(Any, "model"), ids())


def test_a_batch_of_one_value_is_refused() -> None:
    message = "the inputs hold 3 at every place, which shows neither positions nor a spread; pass a batch of real samples."
    assert refusal(HomeMade(), torch.full((BATCH, TOKENS), 3)) == message
    bert, _ = CASES["bert"].made()
    real = (torch.arange(TOKENS) < 5).long().expand(BATCH, -1)
    labels = torch.randint(WORDS, (BATCH, TOKENS))
    assert refusal(bert, {"input_ids": torch.full((BATCH, TOKENS), 3), "attention_mask": real, "labels": labels}) == message
    vit, inputs = CASES["vit"].made()
    assert "the inputs hold 0.5 at every place" in refusal(vit, {"pixel_values": torch.full_like(inputs["pixel_values"], 0.5)})


def test_samples_that_do_not_tell_positions_from_content_are_named_as_the_reason() -> None:
    torch.manual_seed(0)
    palindromes = torch.tensor([1, 2, 3, 4, 5, 4, 3, 2, 1]).repeat(BATCH, 1)
    start = eureka.clear_start(HomeMade(), palindromes)
    assert start.notes == (
        "no learned positions were found in HomeMade on this batch: its samples are all alike, also when they are turned round,"
        " which does not tell positions from content; pass samples that differ.",
    )


class Normed(Grouped):
    """Queries and keys have a length of one: they are in proportion to no weight."""

    def __init__(self) -> None:
        super().__init__(name="mixed")

    def projected(self, x: Tensor) -> list[Tensor]:
        q, k, v = super().projected(x)
        return [F.normalize(q, dim=-1), F.normalize(k, dim=-1), v]


def test_positions_are_rescaled_although_w_q_has_no_usual_name_and_the_note_says_what_was_looked_for() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[0] = Normed()
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert [row.site for row in start.logits] == ["blocks.1"]
    (note,) = start.notes
    assert note.startswith("the logits of blocks.0 are as they were: it has no layer for W_Q by a usual name (query, q_proj, ")
    assert "or as a part of qkv, c_attn, " in note
    assert "and no matrix whose rows make the features of q; the spread is " in note
    model.blocks[1] = Normed()
    assert refusal(model, ids(), positions=None).startswith(
        "W_Q and W_K of HomeMade cannot be rescaled: blocks.0 has no layer for W_Q by a usual name ("
    )
    assert [row.parameters for row in eureka.clear_start(model, ids()).positions] == [("places.weight",)]


def test_frozen_weights_stay_and_it_is_said_as_of_frozen_positions() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[0].requires_grad_(False)
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert changed(model, before) == {"places.weight", "blocks.1.qkv.weight", "blocks.1.qkv.bias"}
    (note,) = start.notes
    assert note.startswith("the logits of blocks.0 are as they were: it has a W_Q that is frozen; the spread is ")
    model.requires_grad_(False)
    assert refusal(model, ids()).startswith(
        "no learned positions: those of HomeMade are fixed (places.weight); blocks.0 has a W_Q that is frozen; the spread is "
    )
    assert refusal(model, ids(), positions=None).startswith(
        "W_Q and W_K of HomeMade cannot be rescaled: blocks.0 has a W_Q that is frozen; the spread is "
    )


def test_a_frozen_bias_of_zero_hinders_nothing_and_any_other_does() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    bias = model.get_parameter("blocks.0.qkv.bias").requires_grad_(False).zero_()
    start = eureka.clear_start(model, ids(), positions=None)
    assert start.notes == ()
    assert not bias.any()
    start.undo()
    bias[0] = 1.0
    (note,) = eureka.clear_start(model, ids(), positions=None).notes
    assert note.startswith("the logits of blocks.0 are as they were: it has a W_Q that is frozen; the spread is ")


def test_a_model_without_attention_is_refused() -> None:
    assert "no attention found in Linear" in refusal(nn.Linear(3, 3), features(2, 3))
