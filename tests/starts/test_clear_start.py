"""A clear start on models of every family: what it sets, says, keeps and puts back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.attention.norm_softmax import NormSoftmax
from eureka.starts.calibrate import calibrate
from tests.starts.twins import (
    BATCH,
    CASES,
    TOKENS,
    WORDS,
    Behind,
    Case,
    HomeMade,
    changed,
    check_against_twins,
    features,
    ids,
    spreads_of_logits,
    state,
)


@pytest.mark.parametrize(("positions", "logits"), [(1.0, 1.0), (0.5, 2.0)])
def test_ratio_and_spread_are_what_was_asked(case: Case, positions: float, logits: float) -> None:
    model, inputs = case.made()
    eureka.clear_start(model, inputs, positions=positions, logits=logits)
    check_against_twins(case, model, inputs, positions, logits)


def test_the_result_says_what_the_slow_twins_say_before_and_after(case: Case) -> None:
    model, inputs = case.made()
    with torch.no_grad():
        ratios, spreads = case.ratios(model, inputs), case.spreads(model, inputs)
    start = eureka.clear_start(model, inputs)
    assert [row.before for row in start.positions] == pytest.approx(ratios, rel=1e-4)
    assert [spread for row in start.logits for spread in row.before] == pytest.approx(spreads, rel=1e-3)
    assert [row.after for row in start.positions] == pytest.approx(case.ratios(model, inputs), rel=1e-4)
    assert [spread for row in start.logits for spread in row.after] == pytest.approx(case.spreads(model, inputs), rel=1e-3)


def test_the_position_share_is_that_of_the_slow_twin_and_clear_start_sets_it(case: Case) -> None:
    model, inputs = case.made()
    before = state(model)
    share = eureka.position_share(model, inputs)
    assert not changed(model, before)
    assert all(-0.2 < each <= 1 for each in share.logits)
    with torch.no_grad():
        ratios = case.ratios(model, inputs)[:1]  # the first attention of BART is that of its encoder
    assert ([] if math.isnan(share.ratio) else [share.ratio]) == pytest.approx(ratios, rel=1e-4)
    assert (share.note is None) == bool(ratios)
    if ratios:
        eureka.clear_start(model, inputs, positions=2.0, logits=None)
        assert eureka.position_share(model, inputs).of_input == pytest.approx(0.8, rel=0.01)


def test_undo_puts_every_bit_back_and_a_second_undo_does_nothing(case: Case) -> None:
    model, inputs = case.made()
    before = state(model)
    start = eureka.clear_start(model, inputs)
    assert changed(model, before)
    start.undo()
    assert changed(model, before) == set()
    with torch.no_grad():
        next(iter(model.parameters())).add_(1.0)
    later = state(model)
    start.undo()
    assert changed(model, later) == set()


def test_a_second_call_changes_nothing(case: Case) -> None:
    model, inputs = case.made()
    first = eureka.clear_start(model, inputs)
    before = state(model)
    second = eureka.clear_start(model, inputs)
    assert changed(model, before) == set()
    assert (
        [row.before for row in second.positions]
        == [row.after for row in second.positions]
        == [row.after for row in first.positions]
    )
    assert second.logits[0].before == second.logits[0].after
    second.undo()
    assert changed(model, before) == set()


def test_only_positions_and_query_and_key_weights_change(case: Case) -> None:
    model, inputs = case.made()
    before = state(model)
    start = eureka.clear_start(model, inputs)
    expected = {name for row in start.positions for name in row.parameters}
    others = changed(model, before) - expected
    assert len(others) >= 2
    words = ("qkv", "query", "key", "q_proj", "k_proj", "c_attn", "in_proj")
    assert [name for name in others if not any(word in name for word in words)] == []


@pytest.mark.parametrize("training", [True, False])
def test_mode_random_state_gradients_hooks_and_classes_stay(case: Case, training: bool) -> None:
    model, inputs = case.made()
    model.train(training)
    parameters = list(model.parameters())
    parameters[0].requires_grad_(False)
    parameters[1].grad = torch.ones_like(parameters[1])
    wanted = [parameter.requires_grad for parameter in parameters]
    modes, kinds = [m.training for m in model.modules()], [type(m) for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    random = torch.get_rng_state()
    eureka.clear_start(model, inputs)
    assert [m.training for m in model.modules()] == modes
    assert [type(m) for m in model.modules()] == kinds
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), random)
    assert [parameter.requires_grad for parameter in parameters] == wanted
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert parameters[1].grad is not None
    assert torch.equal(parameters[1].grad, torch.ones_like(parameters[1]))
    assert torch.is_grad_enabled()


def test_a_batch_of_one_and_a_batch_of_equal_samples_are_enough(case: Case) -> None:
    for copies in (1, 4):
        model, inputs = case.made()
        axis = 1 if isinstance(model, Behind) and not model.batch_first else 0

        def alike(x: Tensor, axis: int = axis, copies: int = copies) -> Tensor:
            return torch.cat([x.narrow(axis, 0, 1)] * copies, dim=axis)

        one = {key: alike(value) for key, value in inputs.items()} if isinstance(inputs, Mapping) else alike(inputs)
        eureka.clear_start(model, one)
        check_against_twins(case, model, one, 1.0, 1.0)


def test_bfloat16_comes_within_one_percent_and_stays_there(case: Case) -> None:
    model, inputs = case.made()
    model = model.bfloat16()
    half = partial(torch.Tensor.to, dtype=torch.bfloat16)
    turn: Callable[[Tensor], Tensor] = lambda x: half(x) if x.is_floating_point() else x  # noqa: E731
    inputs = {key: turn(value) for key, value in inputs.items()} if isinstance(inputs, Mapping) else turn(inputs)
    start = eureka.clear_start(model, inputs)
    for found in [row.after for row in start.positions] + [spread for row in start.logits for spread in row.after]:
        assert found == pytest.approx(1.0, rel=0.01)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    before = state(model)
    eureka.clear_start(model, inputs)
    assert changed(model, before) == set()


def test_inside_autocast_the_weights_of_now_are_measured_and_stay_after_a_second_call() -> None:
    model, inputs = CASES["home-made, fused"].made()
    with torch.autocast("cpu", torch.bfloat16):
        before = model.eval()(inputs)  # autocast keeps the weights of this pass
        start = eureka.clear_start(model, inputs)
        assert [spread for row in start.logits for spread in row.after] == pytest.approx([1.0] * 4, rel=0.01)
        assert [row.after for row in start.positions] == pytest.approx([1.0], rel=0.01)
        once, rescaled = state(model), model(inputs)
        eureka.clear_start(model, inputs)
        assert changed(model, once) == set()
        assert torch.equal(model(inputs), rescaled)
        start.undo()
        assert torch.equal(model(inputs), before)


@pytest.mark.parametrize("name", ["gpt2", "decoder, tied", "bert"])
def test_a_head_that_is_tied_to_the_tokens_stays_tied_and_unchanged(name: str) -> None:
    model, inputs = CASES[name].made()
    tied = [parameter for parameter in model.parameters() if parameter.shape == (WORDS, 16)]
    assert len(tied) == 1
    names = [key for key, parameter in model.named_parameters(remove_duplicate=False) if parameter is tied[0]]
    assert len(names) == 2
    before = tied[0].detach().clone()
    eureka.clear_start(model, inputs)
    assert [key for key, parameter in model.named_parameters(remove_duplicate=False) if parameter is tied[0]] == names
    assert torch.equal(tied[0], before)


def test_a_model_with_gradient_checkpointing_starts_like_one_without() -> None:
    torch.manual_seed(0)
    plain = HomeMade()
    checkpointed = HomeMade(checkpointed=True)
    checkpointed.load_state_dict(plain.state_dict())
    for model in (plain, checkpointed):
        eureka.clear_start(model.train(), ids())
    assert changed(checkpointed, state(plain)) == set()
    bert, inputs = CASES["bert"].made()
    bert.gradient_checkpointing_enable()  # type: ignore[operator]
    bert.train()
    eureka.clear_start(bert, inputs)
    check_against_twins(CASES["bert"], bert, inputs, 1.0, 1.0)
    assert bert.is_gradient_checkpointing


def test_each_part_can_be_switched_off() -> None:
    model, inputs = CASES["home-made, fused"].made()
    before = state(model)
    start = eureka.clear_start(model, inputs, logits=None)
    assert changed(model, before) == {"places.weight"}
    assert not start.logits
    start.undo()
    assert not eureka.clear_start(model, inputs, positions=None).positions
    names = {f"blocks.{i}.qkv.{part}" for i in range(2) for part in ("weight", "bias")}
    assert changed(model, before) == names


class WithOneMoreKey(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True, add_bias_kv=True)
        assert self.attention.bias_k is not None
        nn.init.normal_(self.attention.bias_k, std=1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]  # type: ignore[no-any-return]


def test_a_learned_key_that_w_k_does_not_make_is_allowed_for() -> None:
    torch.manual_seed(0)
    model, x = WithOneMoreKey().eval(), features(BATCH, TOKENS, 16)
    eureka.clear_start(model, x, positions=None)
    with torch.no_grad():
        weights = model.attention(x, x, x, average_attn_weights=False)[1]
    assert weights.shape[-1] == TOKENS + 1
    assert spreads_of_logits(weights.log(), weights > 0) == pytest.approx([1.0, 1.0], rel=0.01)


class Filled(HomeMade):
    """Data are written over a copy of the positions."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.places.weight[: ids.shape[1]].repeat(len(ids), 1, 1)
        x[:] = F.one_hot(ids % 16, 16).float()
        return self.blocks[0](x + self.places.weight[: ids.shape[1]])  # type: ignore[no-any-return]


def test_a_tensor_that_data_are_written_into_no_longer_comes_from_parameters() -> None:
    torch.manual_seed(0)
    start = eureka.clear_start(Filled(), ids(), logits=None)
    assert [row.parameters for row in start.positions] == [("places.weight",)]


def test_values_keep_every_bit_in_a_fused_projection() -> None:
    model, inputs = CASES["home-made, fused"].made()
    before = state(model)
    eureka.clear_start(model, inputs)
    for name in ("blocks.0.qkv.weight", "blocks.0.qkv.bias"):
        assert torch.equal(model.get_parameter(name)[32:], before[name][32:])
        assert not torch.equal(model.get_parameter(name)[:32], before[name][:32])


def test_queries_and_keys_of_a_head_are_scaled_alike_and_grouped_keys_by_the_geometric_mean() -> None:
    model, inputs = CASES["llama, grouped and rotary"].made()
    before = state(model)
    row = eureka.clear_start(model, inputs).logits[0]
    grown = []
    for name in ("q_proj", "k_proj"):
        name = f"{row.site}.{name}.weight"
        grown.append((model.get_parameter(name) / before[name]).reshape(-1, 8 * 32).mean(dim=1))
    each = torch.tensor(row.before).reciprocal()
    keys = each.reshape(2, 2).prod(dim=1) ** 0.25
    torch.testing.assert_close(grown[1], keys, rtol=1e-3, atol=0)
    torch.testing.assert_close(grown[0], each / keys.repeat_interleave(2), rtol=1e-3, atol=0)


def test_a_buffer_that_the_forward_pass_changes_is_put_back() -> None:
    torch.manual_seed(0)
    model = HomeMade(counted=True)
    buffer = model.get_buffer("calls")
    eureka.clear_start(model, ids())
    assert model.get_buffer("calls") is buffer
    assert buffer.item() == 0.0
    model(ids())
    assert buffer.item() == 1.0


class Replacing(HomeMade):
    """Its buffer is another tensor after each pass."""

    def forward(self, ids: Tensor) -> Tensor:
        self.calls = self.get_buffer("calls") + 1
        return super().forward(ids)


def test_a_buffer_that_the_forward_pass_replaces_is_put_back() -> None:
    torch.manual_seed(0)
    model = Replacing()
    buffer = model.get_buffer("calls")
    eureka.clear_start(model, ids())
    assert model.get_buffer("calls") is buffer
    assert buffer.item() == 0.0


def test_a_compiled_model_is_run_uncompiled() -> None:
    model, inputs = CASES["bert"].made()
    compiled: Any = torch.compile(model, backend="eager")
    start = eureka.clear_start(compiled, inputs)
    assert start.model == "BertForMaskedLM"
    check_against_twins(CASES["bert"], model, inputs, 1.0, 1.0)


def test_the_table_names_every_site_and_its_numbers() -> None:
    torch.manual_seed(0)
    lines = str(eureka.clear_start(HomeMade(), ids())).splitlines()
    assert lines[0] == "clear start of HomeMade"
    assert lines[1].split() == ["positions", "/", "content", "before", "after"]
    assert lines[2].split()[0] == "places.weight"
    assert lines[2].split()[-1] == "1.000"
    assert [line.split()[0] for line in lines[4:]] == ["blocks.0", "blocks.1"]
    assert all(line.split()[1] == "2" and line.split()[-1] == "1.000" for line in lines[4:])


def test_an_operator_other_than_softmax_is_noted() -> None:
    model, inputs = CASES["torch.nn"].made()
    with eureka.patch(model, NormSoftmax()):
        start = eureka.clear_start(model, inputs)
    assert start.notes == ("the model attends with NormSoftmax; the spread is that which plain softmax would see.",)
    check_against_twins(CASES["torch.nn"], model, inputs, 1.0, 1.0)


def test_a_second_calibration_scales_nothing_where_one_weight_serves_measurements_that_differ() -> None:
    weight, scaled = [0.1], list[float]()

    def measure() -> dict[str, list[float]]:
        return {"shared": [0.996 * weight[0], 1.004 * weight[0]]}

    def scale(_: str, values: Sequence[float]) -> None:
        scaled.append(2 / sum(values))
        weight[0] *= scaled[-1]

    first = calibrate(measure, scale, 1.0, lambda _: 0.001)
    assert first["shared"] == pytest.approx([0.996, 1.004])
    scaled.clear()
    assert calibrate(measure, scale, 1.0, lambda _: 0.001) == first
    assert scaled == []
