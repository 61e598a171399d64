"""Which parameters are positions, which are not, and among which tokens they are measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import eureka
from tests.starts.twins import (
    BATCH,
    CASES,
    TOKENS,
    VIT,
    WORDS,
    Behind,
    FusedAttention,
    HomeMade,
    changed,
    check_against_twins,
    features,
    hugging_face,
    ids,
    ratio,
    ratios_at_home,
    refusal,
    spreads_of_weights,
    state,
    text,
    text_sizes,
)


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_padding_on_the_right_does_not_hide_the_positions(name: str) -> None:
    model, inputs = CASES[name].made()
    lengths = torch.tensor([9, 5, 7, 9, 6, 8])[:, None]
    mask = (torch.arange(TOKENS) < lengths).long()
    padding = 1 if name == "roberta" else 0
    start = eureka.clear_start(
        model, {"input_ids": torch.where(mask.bool(), inputs["input_ids"], padding), "attention_mask": mask}
    )
    assert [row.after for row in start.positions] == pytest.approx([1.0], rel=0.01)
    assert start.positions[0].parameters[0].endswith("position_embeddings.weight")


def test_positions_that_padding_on_the_left_shifts_are_found() -> None:
    model, inputs = CASES["roberta"].made()
    mask = (torch.arange(TOKENS) >= torch.tensor([0, 7, 2, 5, 3, 1])[:, None]).long()
    padded = torch.where(mask.bool(), inputs["input_ids"], 1)
    start = eureka.clear_start(model, {"input_ids": padded, "attention_mask": mask}, positions=0.5, logits=None)
    assert [row.parameters for row in start.positions] == [("roberta.embeddings.position_embeddings.weight",)]
    e = cast(Any, model).base_model.embeddings
    places = torch.tensor([[1 + max(0, number + 1 - int(first)) for number in range(TOKENS)] for first in (mask == 0).sum(dim=1)])
    content = e.word_embeddings.weight[padded] + e.token_type_embeddings.weight[0]
    real = mask.bool()
    assert ratio(e.position_embeddings.weight[places][real], content[real]) == pytest.approx([0.5], rel=0.01)


def padded(padding: int, lengths: range, length: int = 128) -> tuple[dict[str, Tensor], Tensor]:
    """A batch that is padded to a fixed length, and which tokens are real."""
    real = torch.arange(length) < torch.tensor(list(lengths))[:, None]
    words = torch.randint(3, WORDS, real.shape, generator=torch.Generator().manual_seed(1))
    return {"input_ids": torch.where(real, words, padding), "attention_mask": real.long()}, real


def real_ratio(model: Any, inputs: Mapping[str, Tensor], real: Tensor, places: Tensor) -> float:
    e = model.base_model.embeddings
    content = e.word_embeddings.weight[inputs["input_ids"]] + e.token_type_embeddings.weight[0]
    (found,) = ratio(e.position_embeddings.weight[places][real], content[real])
    return found


@pytest.mark.parametrize(("name", "padding"), [("bert", 0), ("roberta", 1)])
def test_positions_are_found_and_measured_among_the_tokens_that_are_no_padding(name: str, padding: int) -> None:
    torch.manual_seed(0)
    kind = {"bert": "Bert", "roberta": "Roberta"}[name]
    model = hugging_face(f"{kind}ForMaskedLM", f"{kind}Config", **text_sizes(max_position_embeddings=140))
    inputs, real = padded(padding, range(20, 36, 3))
    places = torch.arange(128).expand(len(real), -1) if name == "bert" else real.cumsum(dim=1) * real + 1
    before = real_ratio(model, inputs, real, places)
    start = eureka.clear_start(model, inputs)
    assert [row.before for row in start.positions] == pytest.approx([before], rel=1e-4)
    assert real_ratio(model, inputs, real, places) == pytest.approx(1.0, rel=0.01)
    assert eureka.position_share(model, inputs).ratio == pytest.approx(1.0, rel=0.01)
    assert start.notes == (f"positions are measured without padding: over {real.sum()} of {real.numel()} tokens.",)
    once = state(model)
    eureka.clear_start(model, inputs)
    assert changed(model, once) == set()


def test_a_probe_leaves_the_same_padding_out() -> None:
    torch.manual_seed(0)
    model = hugging_face("BertForMaskedLM", "BertConfig", **text_sizes(max_position_embeddings=140)).eval()
    inputs, real = padded(0, range(20, 36, 3))
    with eureka.AttentionProbe(model) as probe, probe.look():
        model(**inputs)
    share = probe.records[0].position_share
    assert share is not None
    assert share.ratio == pytest.approx(real_ratio(model, inputs, real, torch.arange(128).expand(len(real), -1)), rel=1e-4)


def test_positions_that_stop_at_padding_are_found_without_a_mask() -> None:
    torch.manual_seed(0)
    model = hugging_face("RobertaForMaskedLM", "RobertaConfig", **text_sizes(max_position_embeddings=140))
    inputs, _ = padded(1, range(20, 36, 3))
    start = eureka.clear_start(model, inputs["input_ids"], logits=None)
    assert [row.parameters for row in start.positions] == [("roberta.embeddings.position_embeddings.weight",)]


def test_the_padding_of_a_decoder_is_left_out_of_its_own_positions() -> None:
    model, inputs = CASES["bart"].made()
    real = torch.arange(TOKENS) < torch.tensor([9, 3, 4, 5, 3, 4])[:, None]
    inputs = {**inputs, "attention_mask": real.flip(0).long(), "decoder_attention_mask": real.long()}
    eureka.clear_start(model, inputs, logits=None)
    words, parts = model.get_parameter("model.shared.weight"), ("encoder", "decoder")
    for part, ids_of, seen in zip(parts, ("input_ids", "decoder_input_ids"), (real.flip(0), real), strict=True):
        places = model.get_parameter(f"model.{part}.embed_positions.weight")[2 : 2 + TOKENS].expand(BATCH, -1, -1)
        assert ratio(places[seen], words[inputs[ids_of]][seen]) == pytest.approx([1.0], rel=0.01)


class Crossed(nn.Module):
    """A row and a column are added one after the other, in a plane or to a line of tokens."""

    def __init__(self, *, flat: bool, zero: bool = False) -> None:
        super().__init__()
        self.flat, self.embed = flat, nn.Linear(5, 16)
        self.row, self.column = (nn.Parameter((0.0 if zero else 0.02) * torch.randn(shape)) for shape in ((3, 1, 16), (1, 4, 16)))
        self.attention = FusedAttention()

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        if self.flat:
            row, column = (part.expand(3, 4, -1).flatten(0, 1) for part in (self.row, self.column))
            return self.attention(x.flatten(1, 2) + row + column)  # type: ignore[no-any-return]
        return self.attention((x + self.row + self.column).flatten(1, 2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("batch", [1, BATCH])
def test_rows_and_columns_that_are_added_one_by_one_are_positions_together(flat: bool, zero: bool, batch: int) -> None:
    torch.manual_seed(0)
    model, x = Crossed(flat=flat, zero=zero), features(batch, 3, 4, 5)
    start = eureka.clear_start(model, x)
    assert [(row.parameters, row.drawn) for row in start.positions] == [(("row", "column"), zero)]
    with torch.no_grad():
        assert ratio(model.row + model.column, model.embed(x)) == pytest.approx([1.0], rel=0.01)
    if batch > 1:
        assert eureka.position_share(model, x).ratio == pytest.approx(1.0, rel=0.01)


class Axial(nn.Module):
    """Rows and columns are added one after the other behind a convolution, with features before them."""

    def __init__(self, *, columns_first: bool, zero: bool) -> None:
        super().__init__()
        self.embed, self.attention, self.columns_first = nn.Conv2d(5, 16, 1), FusedAttention(), columns_first
        scale = 0.0 if zero else 0.02
        self.row, self.column = (nn.Parameter(scale * torch.randn(shape)) for shape in ((1, 16, 3, 1), (1, 16, 1, 4)))

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for part in (self.column, self.row) if self.columns_first else (self.row, self.column):
            x = x + part
        return self.attention(x.flatten(2).transpose(1, 2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("columns_first", [True, False])
@pytest.mark.parametrize("batch", [1, BATCH])
def test_rows_and_columns_behind_a_convolution_are_positions_together(columns_first: bool, zero: bool, batch: int) -> None:
    torch.manual_seed(0)
    model, x = Axial(columns_first=columns_first, zero=zero), features(batch, 5, 3, 4)
    start = eureka.clear_start(model, x)
    assert [(row.parameters, row.drawn) for row in start.positions] == [(("row", "column"), zero)]
    with torch.no_grad():
        assert ratio(model.row + model.column, model.embed(x)) == pytest.approx([1.0], rel=0.01)
        assert ratio(model.row, model.column.expand(1, 16, 3, 4)) == pytest.approx([1.0], rel=0.3)  # one factor for both
    if batch > 1:
        assert eureka.position_share(model, x).ratio == pytest.approx(1.0, rel=0.01)


class TwiceSegmented(HomeMade):
    """Two kinds of segments, added one after the other, and no positions."""

    def forward(self, ids: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1])
        x = self.words(ids) + self.places.weight[(place > 4).long()] + self.places.weight[2 + place % 2]
        return self.blocks[0](x)  # type: ignore[no-any-return]


def test_two_kinds_of_segments_are_no_positions_together() -> None:
    torch.manual_seed(0)
    message = refusal(TwiceSegmented(), ids(), logits=None)
    assert message.startswith("no learned positions were found in TwiceSegmented on this batch: what is looked for")


class TurnedLater(Behind):
    """Positions are added samples first, and the encoder wants tokens first."""

    looked_up = False

    def forward(self, x: Tensor) -> Tensor:
        assert self.place is not None
        place = self.place[torch.arange(TOKENS).expand(len(x), -1)] if self.looked_up else self.place
        return self.body((self.embed(x) + place).transpose(0, 1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("looked_up", [True, False])
def test_as_many_samples_as_tokens_do_not_hide_positions_that_are_added_before_tokens_come_first(looked_up: bool) -> None:
    torch.manual_seed(0)
    model, x = TurnedLater(batch_first=False), features(TOKENS, TOKENS, 5)
    model.looked_up = looked_up
    start = eureka.clear_start(model, x)
    assert [row.parameters for row in start.positions] == [("place",)]
    assert model.place is not None
    with torch.no_grad():
        assert ratio(model.place, model.embed(x)) == pytest.approx([1.0], rel=0.01)


def test_segments_are_not_taken_for_positions() -> None:
    model, inputs = CASES["bert"].made()
    segments = (torch.arange(TOKENS) >= 5).long().expand(BATCH, -1)
    start = eureka.clear_start(model, {**inputs, "token_type_ids": segments})
    assert [row.parameters for row in start.positions] == [("bert.embeddings.position_embeddings.weight",)]


@pytest.mark.parametrize("batch", [1, BATCH])
def test_positions_that_are_chosen_by_an_argument_are_found(batch: int) -> None:
    model, _ = CASES["bert"].made()
    places = torch.arange(TOKENS).expand(batch, -1)
    start = eureka.clear_start(model, {"input_ids": ids(batch), "position_ids": places})
    assert [row.parameters for row in start.positions] == [("bert.embeddings.position_embeddings.weight",)]


class Chosen(HomeMade):
    def forward(self, ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        return self.blocks[0](self.words(ids) + self.places.weight[position_ids])  # type: ignore[no-any-return]


def test_positions_chosen_by_an_argument_stay_so_when_a_single_sample_is_turned_round() -> None:
    torch.manual_seed(0)
    inputs = {"ids": ids(1), "position_ids": torch.arange(TOKENS)[None] + 3}
    start = eureka.clear_start(Chosen(), inputs, logits=None)
    assert [row.parameters for row in start.positions] == [("places.weight",)]


def test_words_that_seldom_differ_are_not_taken_for_positions_that_padding_moves() -> None:
    """Both are the same in most tokens of all samples; the steadier one is the position."""
    model, _ = CASES["roberta"].made()
    words = ids(1).repeat(BATCH, 1)
    words[:, -3:] = ids()[:, -3:]
    words[::2, -1] = 1
    start = eureka.clear_start(model, {"input_ids": words}, logits=None)
    assert [row.parameters for row in start.positions] == [("roberta.embeddings.position_embeddings.weight",)]


class Waves(HomeMade):
    """Sinusoids that are computed anew."""

    def forward(self, ids: Tensor) -> Tensor:
        angles = torch.arange(ids.shape[1])[:, None] / 10 ** torch.linspace(0, 2, 8)
        x = self.words(ids) + torch.cat([angles.sin(), angles.cos()], dim=-1)
        return self.blocks[1](self.blocks[0](x))  # type: ignore[no-any-return]


class Sloped(HomeMade):
    """ALiBi: a slope for each head, and nothing added to the words."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("alibi_slopes", torch.ones(2))

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks[0](self.words(ids))  # type: ignore[no-any-return]


class Attached(HomeMade):
    """Fixed positions as a plain attribute, as VideoMAE has them."""

    def __init__(self) -> None:
        super().__init__()
        self.waves = torch.randn(TOKENS, 16)

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks[0](self.words(ids) + self.waves.clone())  # type: ignore[no-any-return]


def frozen() -> HomeMade:
    model = HomeMade()
    model.places.requires_grad_(False)
    return model


T5 = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
KINDS = {
    "rotary": CASES["llama, grouped and rotary"].make,
    "ALiBi": Sloped,
    "relative": lambda: hugging_face("T5EncoderModel", "T5Config", **T5),
    "fixed (pe)": lambda: HomeMade(fixed=True),
    "fixed (places.weight)": frozen,
    "fixed (waves)": Attached,
    "fixed (computed anew in each pass)": Waves,
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_positions_that_are_not_learned_are_named_in_a_note_or_refused_when_nothing_else_is_asked(kind: str) -> None:
    torch.manual_seed(0)
    model = KINDS[kind]()
    inputs = ids() if isinstance(model, HomeMade) else text()
    assert kind in refusal(model, inputs, logits=None)
    start = eureka.clear_start(model, inputs)
    assert f"are {kind}" in start.notes[0]
    assert not start.positions
    assert start.logits


def test_a_relative_table_that_starts_at_zero_stays_zero() -> None:
    torch.manual_seed(0)
    model = hugging_face("BeitModel", "BeitConfig", **VIT, use_relative_position_bias=True)
    start = eureka.clear_start(model, {"pixel_values": features(BATCH, 3, 12, 12)})
    assert start.notes == ("no learned positions: those of BeitModel are relative and act inside the attention.",)
    assert not model.get_parameter("layers.0.relative_position_bias.relative_position_bias_table").any()


def test_a_kind_of_positions_that_is_switched_off_is_not_named() -> None:
    torch.manual_seed(0)
    model = hugging_face("BeitModel", "BeitConfig", **VIT)
    message = refusal(model, {"pixel_values": features(BATCH, 3, 12, 12)}, logits=None)
    assert message.startswith("no learned positions were found in BeitModel")


def test_loud_positions_are_not_found_again_behind_the_attention() -> None:
    """Where tokens are looked up, the residual sums come from parameters too, and loud positions make them steady."""
    torch.manual_seed(0)
    model = HomeMade()
    nn.init.normal_(model.places.weight, std=30.0)
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    nn.init.normal_(model.places.weight.requires_grad_(False), std=30.0)
    start = eureka.clear_start(model, ids())
    assert start.notes == ("no learned positions: those of HomeMade are fixed (places.weight).",)


def test_no_positions_at_all_is_said() -> None:
    torch.manual_seed(0)
    message = refusal(Behind(positions=False), features(BATCH, TOKENS, 5), logits=None)
    assert message.startswith("no learned positions were found in Behind")


def test_positions_that_start_at_zero_are_drawn_and_it_is_said() -> None:
    torch.manual_seed(0)
    model = HomeMade(zero=True)
    start = eureka.clear_start(model, ids())
    assert ratios_at_home(model, ids()) == pytest.approx([1.0], rel=0.01)
    assert [(row.parameters, row.before, row.drawn) for row in start.positions] == [(("places.weight",), 0.0, True)]
    assert start.notes == ("the positions places.weight were zero; they are drawn from a normal distribution, seed 0.",)
    assert str(start).splitlines()[2].split() == ["places.weight", "drawn", "0.000", "1.000"]
    values = model.places.weight.detach()
    assert len(torch.unique(values)) == values.numel()
    assert not eureka.clear_start(model, ids()).positions[0].drawn
    start.undo()
    assert not model.places.weight.any()


def test_the_seed_decides_what_is_drawn() -> None:
    found: list[Tensor] = []
    for seed in (0, 0, 1):
        torch.manual_seed(0)
        model = HomeMade(zero=True)
        torch.manual_seed(100 + len(found))
        eureka.clear_start(model, ids(), seed=seed)
        found.append(model.places.weight.detach())
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


class Segmented(HomeMade):
    """A table of segments that starts at zero."""

    def __init__(self, *, zero: bool = False) -> None:
        super().__init__(zero=zero)
        self.segments = nn.Parameter(torch.zeros(2, 16))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.segments[(torch.arange(ids.shape[1]) > 4).long()]
        return self.blocks[0](x + self.places(torch.arange(ids.shape[1])))  # type: ignore[no-any-return]


@pytest.mark.parametrize("zero", [True, False])
def test_a_zero_table_that_is_no_position_stays_zero(zero: bool) -> None:
    torch.manual_seed(0)
    model = Segmented(zero=zero)
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert start.positions[0].drawn is zero
    assert not model.segments.any()
    assert ratios_at_home(model, ids()) == pytest.approx([1.0], rel=0.01)


def test_zero_positions_beside_others_are_drawn_too() -> None:
    model, inputs = CASES["bart"].made()
    nn.init.zeros_(model.get_parameter("model.decoder.embed_positions.weight"))
    start = eureka.clear_start(model, inputs)
    assert [row.drawn for row in start.positions] == [False, True]
    check_against_twins(CASES["bart"], model, inputs, 1.0, 1.0)


class Normed(HomeMade):
    """Positions behind a norm, which no factor gets through."""

    def __init__(self, *, zero: bool) -> None:
        super().__init__(zero=zero)
        self.norm = nn.LayerNorm(16, elementwise_affine=False)

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks[0](self.words(ids) + self.norm(self.places.weight[: ids.shape[1]]))  # type: ignore[no-any-return]


@pytest.mark.parametrize("zero", [True, False])
def test_positions_that_cannot_be_rescaled_stay_as_they_were_even_if_zero(zero: bool) -> None:
    torch.manual_seed(0)
    model = Normed(zero=zero)
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert start.positions == ()
    assert changed(model, before) == {"blocks.0.qkv.weight", "blocks.0.qkv.bias"}
    assert "places.weight" in start.notes[0]
    assert not any("they are drawn" in note for note in start.notes)


class Beside(HomeMade):
    """Plain positions beside rows behind a norm and columns; after the block, perhaps, a table of its own."""

    def __init__(self, *, later: bool) -> None:
        super().__init__()
        self.rows, self.columns, self.tail = (nn.Parameter(torch.zeros(n, 16)) for n in (3, 4, TOKENS))
        self.norm, self.later = nn.LayerNorm(16, elementwise_affine=False), later
        nn.init.normal_(self.columns)
        nn.init.normal_(self.tail)

    def forward(self, ids: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1])
        x = self.words(ids) + self.norm(self.rows)[place // 4] + self.columns[place % 4] + self.places(place)
        out: Tensor = self.blocks[0](x)
        return out + self.tail[: ids.shape[1]] if self.later else out


@pytest.mark.parametrize("later", [False, True])
def test_positions_are_rescaled_beside_zero_ones_that_cannot_be(later: bool) -> None:
    torch.manual_seed(0)
    model = Beside(later=later)
    with torch.no_grad():
        place = torch.arange(ids().shape[1])
        content, places = model.words(ids()) + model.columns[place % 4], model.places(place).expand(*ids().shape, -1)
        ratio = (places.square().mean() / content.square().mean()).sqrt().item()
    start = eureka.clear_start(model, ids(), logits=None)
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert start.positions[0].before == pytest.approx(ratio, rel=1e-5)
    assert start.positions[0].after == pytest.approx(1.0, rel=0.01)
    assert not model.rows.any()
    assert any("rows" in note and "are as they were" in note for note in start.notes)


class Gated(HomeMade):
    """Positions behind a gate that starts closed."""

    def __init__(self, *shape: int, fixed: bool) -> None:
        super().__init__(fixed=fixed)
        self.gate = nn.Parameter(torch.zeros(shape))

    def forward(self, ids: Tensor) -> Tensor:
        places = (self.get_buffer("pe") if self.fixed else self.places.weight)[: ids.shape[1]]
        return self.blocks[0](self.words(ids) + self.gate * places)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("shape", "fixed", "names"), [((16,), True, "gate"), ((TOKENS, 16), False, "gate and places.weight")])
def test_a_gate_that_starts_closed_is_not_drawn_but_told_of(shape: tuple[int, ...], fixed: bool, names: str) -> None:
    torch.manual_seed(0)
    model = Gated(*shape, fixed=fixed)
    assert f"but {names} is all zero and added token by token" in refusal(model, ids(), logits=None)
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert f"but {names} is all zero and added token by token" in start.notes[0]
    assert changed(model, before) == {"blocks.0.qkv.weight", "blocks.0.qkv.bias"}


def test_a_lookup_of_a_single_number_or_of_none_adds_no_positions() -> None:
    class Speaker(HomeMade):
        def forward(self, ids: Tensor) -> Tensor:
            return super().forward(ids) + self.words(torch.tensor(3)) + self.words(ids[:0]).sum()  # type: ignore[no-any-return]

    torch.manual_seed(0)
    assert [row.parameters for row in eureka.clear_start(Speaker(), ids()).positions] == [("places.weight",)]


def test_inputs_that_the_model_does_not_take_turned_round_are_no_reason_to_refuse_it() -> None:
    class Sized(HomeMade):
        def forward(self, ids: Tensor, sizes: Tensor | None = None) -> Tensor:
            assert sizes is not None
            assert sizes.tolist() == [1, 2, 3]
            return self.blocks[0](self.words(ids))  # type: ignore[no-any-return]

    torch.manual_seed(0)
    start = eureka.clear_start(Sized(), {"ids": ids(), "sizes": torch.tensor([1, 2, 3])})
    assert "no learned positions were found in Sized on this batch" in start.notes[0]
    assert start.logits[0].after == pytest.approx([1.0] * 2, rel=0.01)


class Shifted(HomeMade):
    """A bias for each feature that starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, 1, 16))

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks[0](self.words(ids) + self.bias)  # type: ignore[no-any-return]


def test_a_zero_bias_is_not_taken_for_positions() -> None:
    torch.manual_seed(0)
    assert refusal(Shifted(), ids(), logits=None).startswith("no learned positions were found in Shifted")


def test_a_model_that_draws_in_each_pass_is_measured_on_one_and_the_same_draw() -> None:
    torch.manual_seed(0)
    model = hugging_face("ViTMAEModel", "ViTMAEConfig", **VIT)
    inputs = {"pixel_values": features(BATCH, 3, 12, 12)}
    eureka.clear_start(model, inputs)
    before = state(model)
    torch.manual_seed(7)
    eureka.clear_start(model, inputs)
    assert changed(model, before) == set()
    torch.manual_seed(0)
    assert spreads_of_weights(model, inputs) == pytest.approx([1.0] * 4, rel=0.01)


def test_fixed_positions_beside_learned_ones_are_noted() -> None:
    model, inputs = CASES["bart"].made()
    model.get_parameter("model.encoder.embed_positions.weight").requires_grad_(False)
    start = eureka.clear_start(model, inputs)
    assert [row.parameters for row in start.positions] == [("model.decoder.embed_positions.weight",)]
    assert start.notes == ("the positions model.encoder.embed_positions.weight are fixed; they are as they were.",)
    model.get_parameter("model.decoder.embed_positions.weight").requires_grad_(False)
    both = "model.decoder.embed_positions.weight and model.encoder.embed_positions.weight"
    assert f"are fixed ({both})." in refusal(model, inputs, logits=None)


class Doubled(HomeMade):
    """One table for words and places."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.words(torch.arange(ids.shape[1]))
        return self.blocks[0](x)  # type: ignore[no-any-return]


def test_a_table_for_words_and_positions_is_left_alone_with_a_note() -> None:
    torch.manual_seed(0)
    assert refusal(Doubled(), ids(), logits=None) == "the positions words.weight are as they were: words.weight is content too."
    model = Doubled()
    before = state(model)
    assert (
        eureka.clear_start(model, ids()).notes[0] == "the positions words.weight are as they were: words.weight is content too."
    )
    assert changed(model, before) == {"blocks.0.qkv.weight", "blocks.0.qkv.bias"}


class SlowRecurrence(HomeMade):
    """Adds what a recurrence makes of the words: almost the same for every sample, because most of it is how it begins."""

    def __init__(self) -> None:
        super().__init__()
        self.decay, self.begin = nn.Parameter(torch.linspace(0.5, 0.9, 16)), nn.Parameter(3 * torch.randn(16))

    def forward(self, ids: Tensor) -> Tensor:
        words = self.words(ids)
        now, states = self.begin + 0 * words[:, 0], list[Tensor]()
        for word in words.unbind(1):
            now = self.decay * now + 0.05 * word
            states.append(now)
        return self.blocks[0](words + torch.stack(states, dim=1))  # type: ignore[no-any-return]


def test_a_recurrence_of_the_words_is_no_position() -> None:
    torch.manual_seed(0)
    model = SlowRecurrence()
    before = state(model)
    start = eureka.clear_start(model, ids(2))
    assert start.positions == ()
    assert "no learned positions were found in SlowRecurrence" in start.notes[0]
    assert changed(model, before) == {f"blocks.0.qkv.{part}" for part in ("weight", "bias")}


class Bent(HomeMade):
    """Positions that do not reach the content in proportion to their parameters."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1])).tanh()
        return self.blocks[0](x)  # type: ignore[no-any-return]


def test_positions_out_of_proportion_are_left_alone_with_a_note() -> None:
    torch.manual_seed(0)
    assert "do not reach the content in proportion" in refusal(Bent(), ids(), positions=3.0, logits=None)
    model = Bent()
    before = state(model)
    start = eureka.clear_start(model, ids(), positions=3.0)
    assert start.notes[0].startswith("the positions places.weight are as they were: they do not reach the content in proportion")
    assert changed(model, before) == {"blocks.0.qkv.weight", "blocks.0.qkv.bias"}


class Summed(HomeMade):
    """Learned segments on top of fixed positions, as in Kosmos; and, if asked, learned positions beside them."""

    def __init__(self, *, learned: bool) -> None:
        super().__init__()
        self.learned, self.segments = learned, nn.Embedding(2, 16)

    def forward(self, ids: Tensor) -> Tensor:
        tokens = torch.arange(ids.shape[1])
        x = self.words(ids) + (self.get_buffer("pe")[: len(tokens)] + self.segments(torch.zeros_like(tokens)))
        return self.blocks[0](x + self.places(tokens) if self.learned else x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("learned", [True, False])
def test_a_fixed_factor_before_learned_positions_is_no_hindrance(learned: bool) -> None:
    class Factor(HomeMade):
        def forward(self, ids: Tensor) -> Tensor:
            places = self.get_buffer("pe")[: ids.shape[1]] * self.places(torch.arange(ids.shape[1]))
            return self.blocks[0](self.words(ids) + places)  # type: ignore[no-any-return]

    torch.manual_seed(0)
    model = Factor()
    model.places.requires_grad_(learned)
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == ([("places.weight",)] if learned else [])


@pytest.mark.parametrize("learned", [True, False])
def test_fixed_positions_with_something_learned_on_top_leave_the_rest_to_be_done(learned: bool) -> None:
    torch.manual_seed(0)
    model = Summed(learned=learned)
    before = state(model)
    start = eureka.clear_start(model, ids(), positions=5.0)
    assert [row.parameters for row in start.positions] == ([("places.weight",)] if learned else [])
    why = "they do not reach the content in proportion: a norm or a product stands between, or pe is added to them"
    assert f"the positions segments.weight are as they were: {why}." in start.notes
    assert changed(model, before) == {"blocks.0.qkv.weight", "blocks.0.qkv.bias"} | ({"places.weight"} if learned else set())


class ByItself(nn.Module):
    """Attention that computes its own softmax, and adds a learned bias to its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(16, 48), nn.Parameter(torch.randn(2, TOKENS, TOKENS))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1) + self.bias).softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


class BiasedQueries(ByItself):
    """A bias of each head is added to its queries, as in DeBERTa, and starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.q_bias = nn.Parameter(torch.zeros(2, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return (((q + self.q_bias) @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def test_a_zero_bias_inside_attention_that_is_written_out_is_not_taken_for_positions() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks = nn.ModuleList(BiasedQueries() for _ in range(2))
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert start.notes == ()


class AllInOne(ByItself):
    """The module that writes out the softmax has the words and the positions too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Parameter(0.02 * torch.randn(TOKENS, 16))

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(self.words(ids) + self.places)


def test_positions_beside_a_softmax_that_the_same_module_writes_out_are_found_and_its_bias_is_none() -> None:
    torch.manual_seed(0)
    model = AllInOne()
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places",)]
    assert ratio(model.places, model.words(ids())) == pytest.approx([1.0], rel=0.01)
    assert start.notes == ()


class Capped(ByItself):
    """A function between q·k and its softmax."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1)).tanh().softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def test_positions_are_rescaled_although_the_softmax_is_out_of_reach() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks = nn.ModuleList(Capped() for _ in range(2))
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert changed(model, before) == {"places.weight"}
    assert ratios_at_home(model, ids()) == pytest.approx([1.0], rel=0.01)
    (note,) = start.notes
    assert note.startswith("the logits of blocks.0 and blocks.1 are as they were: each was not called, or takes its softmax")
    assert re.search(r"\(test_positions\.py:\d+\)\.$", note)  # where it does so
    message = refusal(model, ids(), positions=None)
    assert message.startswith(
        "W_Q and W_K of HomeMade cannot be rescaled: blocks.0 was not called, or takes its softmax in a way"
    )


class HeadNorm(nn.Module):
    """A norm over each head, with a weight and a bias of its own, as in Chameleon."""

    def __init__(self, heads: int, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(heads, size)), nn.Parameter(torch.zeros(heads, size))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, x.shape[-1:]) * self.weight + self.bias


class NormedHeads(FusedAttention):
    def __init__(self) -> None:
        super().__init__()
        self.norm = HeadNorm(self.heads, 16 // self.heads)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q = self.norm(q.flatten(0, 1)).view_as(q)
        mixed = nn.functional.scaled_dot_product_attention(*(one.transpose(1, 2) for one in (q, k, v)))
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_the_bias_of_a_norm_over_heads_is_no_position() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[0] = NormedHeads()
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert torch.equal(model.get_parameter("blocks.0.norm.bias"), torch.zeros(2, 8))


class Recurrent(HomeMade):
    """Before it attends it adds what a recurrence made of the words, which is zero at first."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        x = x + torch.zeros_like(x) * x
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + block(norm(x))
        return x  # type: ignore[no-any-return]


def test_what_a_recurrence_adds_is_no_position_although_it_is_zero_at_first() -> None:
    torch.manual_seed(0)
    start = eureka.clear_start(Recurrent(), ids())
    assert start.positions == ()
    assert start.notes[0].startswith("no learned positions were found in Recurrent")
