"""A clear start of models as people write them: what is taken for positions, what is scaled, and what stays as it was."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.probes.additions import Addition
from tests.starts.twins import changed, refusal, state

SAMPLES, TOKENS, FEATURES, DIM = 6, 16, 5, 32


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def table() -> nn.Parameter:
    return nn.Parameter(0.02 * torch.randn(TOKENS, DIM))


def batch(*shape: int) -> Tensor:
    return torch.randn(*(shape or (SAMPLES, TOKENS, FEATURES)), generator=torch.Generator().manual_seed(1))


def rms(x: Tensor) -> float:
    return x.detach().square().mean().sqrt().item()


class Attend(nn.Module):
    """Attention with a residual; the mask is passed on to the fused function."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(DIM, DIM) for _ in "qkv")

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return x + F.scaled_dot_product_attention(q, k, v, mask).transpose(1, 2).flatten(2)


class Model(nn.Module):
    """Embeds features, adds positions and attends."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions, self.attend = nn.Linear(FEATURES, DIM), table(), Attend()

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(self.embed(x) + self.positions)  # type: ignore[no-any-return]


class Biased(nn.Module):
    """Has no positions, but a learned bias that is added to a mask, or to distances, before it is added to the logits."""

    def __init__(self, hide: float | None) -> None:
        super().__init__()
        self.embed, self.bias, self.attend, self.hide = (
            nn.Linear(FEATURES, DIM),
            nn.Parameter(torch.randn(16, 16)),
            Attend(),
            hide,
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden = (torch.arange(TOKENS) >= torch.tensor([16, 14, 12, 10, 16, 13])[:, None]).float()
        beside = -torch.cdist(x, x) if self.hide is None else (hidden * self.hide)[:, None].expand(-1, TOKENS, -1)
        return self.attend(self.embed(x), (beside + self.bias)[:, None])  # type: ignore[no-any-return]


class Altered(Biased):
    """Computes something else from its bias, in other memory, before it hands it on."""

    def __init__(self, alter: Callable[[Tensor], Tensor]) -> None:
        super().__init__(None)
        self.alter = alter

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(self.embed(x), self.alter((self.bias - torch.cdist(x, x))[:, None]))  # type: ignore[no-any-return]


@pytest.mark.parametrize("alter", [lambda m: 0.5 * m, lambda m: m.repeat(1, 4, 1, 1), lambda m: m.tril(), torch.clone])
def test_a_bias_that_is_altered_on_its_way_to_the_logits_is_no_position(alter: Callable[[Tensor], Tensor]) -> None:
    model = Altered(alter)
    before = state(model)
    assert eureka.clear_start(model, batch()).positions == ()
    assert "bias" not in changed(model, before)


@pytest.mark.parametrize("hide", [-1e4, torch.finfo(torch.float32).min, None])
def test_a_bias_of_the_logits_is_no_position(hide: float | None) -> None:
    model = Biased(hide)
    before = state(model)
    start = eureka.clear_start(model, batch())
    assert start.positions == ()
    assert "bias" not in changed(model, before)
    assert "no learned positions were found in Biased" in start.notes[0]


class Masked(Model):
    """Hides keys by a number."""

    hide = -torch.inf

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.arange(TOKENS) >= torch.tensor([16, 14, 12, 10, 16, 3])[:, None]
        mask = torch.zeros(SAMPLES, 1, 1, TOKENS).masked_fill(hidden[:, None, None], self.hide)
        return self.attend(self.embed(x) + self.positions, mask)  # type: ignore[no-any-return]


@pytest.mark.parametrize("hide", [torch.finfo(torch.float32).min, -1e9, -1e4])
def test_the_share_of_the_logits_is_the_same_by_whatever_number_keys_are_hidden(hide: float) -> None:
    model = Masked()
    wanted = eureka.position_share(model, batch())
    model.hide = hide
    assert eureka.position_share(model, batch()).logits == pytest.approx(wanted.logits)


class Twice(Model):
    """Adds positions again after its first attention: others, or the same."""

    def __init__(self, *, same: bool) -> None:
        super().__init__()
        self.more, self.again = self.positions if same else table(), Attend()

    def forward(self, x: Tensor) -> Tensor:
        return self.again(super().forward(x) + self.more)  # type: ignore[no-any-return]


def test_positions_behind_the_first_attention_are_named_and_left_alone() -> None:
    model = Twice(same=False)
    before = state(model)
    start = eureka.clear_start(model, batch())
    assert [row.parameters for row in start.positions] == [("positions",)]
    assert start.notes == ("the positions more are added after the first attention; they are as they were.",)
    assert "more" not in changed(model, before)


def test_positions_that_are_added_again_behind_the_first_attention_are_told_of() -> None:
    start = eureka.clear_start(Twice(same=True), batch())
    assert start.notes == ("the positions positions are added again after the first attention, with the same factor.",)


class Late(Twice):
    """Adds none before."""

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.attend(self.embed(x)) + self.more)  # type: ignore[no-any-return]


def test_a_model_with_positions_only_behind_its_first_attention_says_so() -> None:
    assert "before its first attention; more is added after it, and is as it was" in refusal(
        Late(same=False), batch(), logits=None
    )


class ChannelsFirst(Model):
    """Has a bias for each channel, and channels before tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(DIM, FEATURES)), nn.Parameter(torch.randn(DIM))

    def forward(self, x: Tensor) -> Tensor:
        return self.attend((self.weight @ x.transpose(1, 2) + self.bias[:, None]).transpose(1, 2))  # type: ignore[no-any-return]


def test_a_bias_of_channels_is_no_position() -> None:
    assert "no learned positions" in refusal(ChannelsFirst(), batch(), logits=None)


class Normed(Model):
    """A batch norm makes the content."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(DIM)

    def content(self, x: Tensor) -> Tensor:
        return self.norm(self.embed(x).transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(self.content(x) + self.positions)  # type: ignore[no-any-return]


@pytest.mark.parametrize("scale", [0.1, 10.0])
def test_the_content_of_a_batch_norm_is_that_of_training(scale: float) -> None:
    model, inputs = Normed().train(), scale * batch()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    eureka.clear_start(model, inputs)
    assert eureka.position_share(model, inputs).ratio == pytest.approx(1.0, rel=0.01)
    assert model.norm.training
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())
    assert rms(model.positions) / rms(model.content(inputs)) == pytest.approx(1.0, rel=0.01)


class Frames(Model):
    """(samples, frames, tokens, features): each frame is a sample to the attention."""

    def forward(self, x: Tensor) -> Tensor:
        return self.attend((self.embed(x) + self.positions).flatten(0, 1))  # type: ignore[no-any-return]


def test_positions_that_frames_share_are_found() -> None:
    model, inputs = Frames(), batch(SAMPLES, 3, TOKENS, FEATURES)
    start = eureka.clear_start(model, inputs)
    assert [row.parameters for row in start.positions] == [("positions",)]
    assert rms(model.positions) / rms(model.embed(inputs)) == pytest.approx(1.0, rel=0.01)


class Streams(Model):
    """The same positions for two kinds of tokens, one of them louder."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(FEATURES, DIM)

    def contents(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.embed(x), 3 * self.other(x)[:, :10]

    def forward(self, x: Tensor) -> Tensor:
        one, other = self.contents(x)
        return self.attend(torch.cat([one + self.positions, other + self.positions[:10]], dim=1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("asked", [1.0, 0.5])
def test_positions_in_several_places_have_one_ratio_over_all_of_them(asked: float) -> None:
    model = Streams()
    (row,) = eureka.clear_start(model, batch(), positions=asked).positions
    added = torch.cat([model.positions, model.positions[:10]])
    content = torch.cat([part.flatten(0, 1) for part in model.contents(batch())])
    assert rms(added) / rms(content) == pytest.approx(asked, rel=0.01)
    assert row.after == pytest.approx(asked, rel=0.01)


class Gated(Model):
    """Positions behind a number that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(self.embed(x) + self.gate * self.positions)  # type: ignore[no-any-return]


def test_positions_behind_a_gate_are_scaled_and_the_gate_is_not() -> None:
    model = Gated()
    start = eureka.clear_start(model, batch())
    assert model.gate.item() == 0.5
    assert [row.parameters for row in start.positions] == [("positions",)]
    assert 0.5 * rms(model.positions) / rms(model.embed(batch())) == pytest.approx(1.0, rel=0.01)


class Latents(Model):
    """Its first attention sees learned vectors alone."""

    def __init__(self) -> None:
        super().__init__()
        self.latents, self.again = nn.Parameter(torch.randn(TOKENS, DIM)), Attend()

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.attend(self.latents.expand(len(x), -1, -1) + self.positions) + self.embed(x))  # type: ignore[no-any-return]


def test_samples_that_differ_are_not_called_alike() -> None:
    (note,) = eureka.clear_start(Latents(), batch()).notes
    assert "alike" not in note
    alike = torch.tensor([1.0, 2.0, 3.0, 2.0, 1.0]).expand(SAMPLES, TOKENS, FEATURES)
    assert "pass samples that differ" in refusal(Model(), alike, logits=None)


class InPlace(Model):
    """Writes into what it is given."""

    def forward(self, x: Tensor) -> Tensor:
        x += self.positions
        return self.attend(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("look", [eureka.clear_start, eureka.position_share], ids=lambda look: look.__name__)
def test_the_batch_stays_as_it_was(look: Callable[..., object]) -> None:
    inputs = batch(SAMPLES, TOKENS, DIM)
    given = inputs.clone()
    look(InPlace(), inputs)
    assert torch.equal(inputs, given)


class Drawing(Model):
    """Draws random numbers of Python and NumPy in its pass."""

    def forward(self, x: Tensor) -> Tensor:
        random.random()
        np.random.random()
        return super().forward(x)


def test_the_random_numbers_of_python_and_numpy_go_on() -> None:
    python, numbers = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    eureka.clear_start(Drawing(), batch())
    assert random.getstate() == python
    assert np.random.get_state()[1].tolist() == numbers  # type: ignore[index]


def test_the_buffers_of_a_spectral_norm_stay() -> None:
    model = Model().train()
    nn.utils.parametrizations.spectral_norm(model.embed)
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    eureka.clear_start(model, batch())
    assert len(before) == 2
    assert all(torch.equal(buffer, before[name]) for name, buffer in model.named_buffers())


def test_a_layer_that_makes_keys_and_values_is_not_scaled() -> None:
    model = Model()
    model.attend.v = model.attend.k
    before = state(model)
    start = eureka.clear_start(model, batch())
    assert changed(model, before) == {"positions", "attend.q.weight", "attend.q.bias"}
    assert start.notes == ("W_Q of attend takes the whole factor, because it has a W_K that is W_V too.",)
    assert start.logits[0].after == pytest.approx([1.0] * 4, rel=0.01)


def test_a_weight_that_is_computed_anew_is_named() -> None:
    model = Model()
    nn.utils.parametrizations.weight_norm(model.attend.q)
    start = eureka.clear_start(model, batch())
    (note,) = start.notes
    assert note.startswith("W_K of attend takes the whole factor, because it makes q by q, whose weight is no parameter (it is")
    assert start.logits[0].after == pytest.approx([1.0] * 4, rel=0.01)
    nn.utils.parametrizations.weight_norm(model.attend.k)
    (note,) = eureka.clear_start(model, batch()).notes
    assert "it makes q by q, whose weight is no parameter (it is computed anew, or quantised); the spread is " in note


class ShiftedWindows(Model):
    """Windows are samples; the second layer adds a learned bias to a fixed mask of each window, as Swin of timm does."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.bias = Attend(), nn.Parameter(0.02 * torch.randn(1, 4, 16, 16))
        shifts = torch.where(torch.rand(2, 16, 16) > 0.3, 0.0, -100.0)
        self.register_buffer("shifts", shifts)

    def forward(self, x: Tensor) -> Tensor:
        assert isinstance(self.shifts, Tensor)
        mask = self.shifts[None].expand(len(x) // 2, -1, -1, -1).reshape(-1, 1, 16, 16).expand(-1, 4, -1, -1)
        return self.again(super().forward(x), self.bias + mask)  # type: ignore[no-any-return]


def test_a_bias_of_later_logits_that_is_added_to_a_fixed_mask_is_no_position() -> None:
    model = ShiftedWindows()
    before = state(model)
    start = eureka.clear_start(model, batch(), logits=None)
    assert [row.parameters for row in start.positions] == [("positions",)]
    assert changed(model, before) == {"positions"}


class Branching(Attend):
    """Has the fused function in its code, and goes another way."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if torch.is_grad_enabled() and torch.is_inference_mode_enabled():
            return super().forward(x, F.scaled_dot_product_attention(x, x, x))
        q, k, v = (layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        return x + ((q @ k.transpose(-2, -1)).exp() @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def test_a_branch_that_attends_without_any_softmax_is_a_cause_that_is_named() -> None:
    model = Model()
    model.attend = Branching()
    assert "its code attends in a way that could not be followed" in refusal(model, batch())


def test_batch_norms_that_are_drawn_are_no_sign_of_training() -> None:
    model = Normed()
    nn.init.normal_(model.norm.weight)
    assert eureka.clear_start(model, batch()).positions


def test_the_sums_of_an_empty_batch_add_no_positions() -> None:
    empty = torch.empty(0, TOKENS, DIM)
    assert not Addition(empty, empty, frozenset({"positions"}), frozenset(), spans_tokens=True, counted=False).adds_positions()
