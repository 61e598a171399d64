"""Runs that only look like a fault are left alone, and the faults that they look like are still found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.doctor.checks import (
    attention_axis,
    data,
    decay,
    dropout,
    labels,
    loss_form,
    movement,
    padding,
    positions,
    sight,
    targets,
)
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.doctor.view import named_tensors
from eureka.forks.case import make_case

Check = Callable[[Exam], Iterator[Finding]]
Loss = Callable[[nn.Module, Any], Tensor]


@pytest.fixture(autouse=True)
def _one_seed() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)


def found(check: Check, model: nn.Module, batches: list[Any], loss: Loss, lr: float = 1e-4, steps: int = 0) -> list[Finding]:
    """What a check says after some steps of training."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for i in range(steps):
        optimizer.zero_grad()
        loss(model, batches[i % len(batches)]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return list(check(Exam(make_case(model, batches, loss=loss, optimizer=optimizer, step=None, most=24))))


def causes(*args: Any, **options: Any) -> list[str]:
    return [one.cause for one in found(*args, **options)]


class Block(nn.Module):
    def __init__(self, causal: bool, experts: bool = False) -> None:
        super().__init__()
        self.causal, self.experts = causal, experts
        self.norm, self.qkv, self.out = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)
        self.route, self.expert = nn.Linear(16, 4), nn.Parameter(0.3 * torch.randn(4, 16, 16))
        self.mlp = nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        mask = None if seen is None else seen[:, None, None]
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=self.causal)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + (self.limited(x) if self.experts else self.mlp(x))

    def limited(self, x: Tensor) -> Tensor:
        """Each expert takes only so many tokens, those of the first samples first."""
        flat = x.flatten(0, 1)
        share, chosen = self.route(flat).softmax(-1).max(-1)
        result = torch.zeros_like(flat)
        for i, expert in enumerate(self.expert):
            taken = (chosen == i).nonzero()[: len(flat) // 8, 0]
            result = result.index_add(0, taken, share[taken, None] * (flat[taken] @ expert))
        return result.view_as(x)


class Model(nn.Module):
    """Tokens, or vectors of 3, in; an answer at every token, at those of `keep`, or one from the mean."""

    def __init__(
        self, outputs: int = 12, tokens: int = 12, *, causal: bool = True, pooled: bool = False, flat: bool = False,
        pad: int | None = None, kinds: bool = False, positions: bool = True, experts: bool = False, factor: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.embed: nn.Module = nn.Embedding(tokens, 16) if tokens else nn.Linear(3, 16)
        self.kinds = nn.Embedding(2, 16) if kinds else None
        self.positions = nn.Parameter(0.5 * torch.randn(24, 16)) if positions else None
        self.blocks = nn.ModuleList(Block(causal, experts) for _ in range(2))
        self.head = nn.Linear(16, outputs)
        self.pooled, self.flat, self.pad, self.factor = pooled, flat, pad, factor

    def forward(self, tokens: Tensor, token_type_ids: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
        x = self.factor * self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions[: x.shape[1]]
        if self.kinds is not None and token_type_ids is not None:
            x = x + self.kinds(token_type_ids)
        seen = None if self.pad is None else tokens != self.pad
        for block in self.blocks:
            x = block(x, seen)
        if self.pooled:
            x = x.mean(1) if seen is None else (x * seen[..., None]).sum(1) / seen.sum(1, keepdim=True)
        if self.flat:
            x = x.flatten(0, 1)
            x = x if keep is None else x[keep.flatten()]
        return self.head(x)  # type: ignore[no-any-return]


def tokens(length: int = 12, n: int = 24, size: int = 16) -> list[Tensor]:
    """Rows that count up in steps of one or two."""
    first = torch.randint(12, (n, size, 1))
    return list((first + torch.randint(1, 3, (n, size, length)).cumsum(2)) % 12)


def everywhere(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]).flatten(0, -2), batch[1].flatten())


def once_a_row(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def at_hidden_places(model: nn.Module, batch: Any) -> Tensor:
    hidden = batch == 3
    return F.cross_entropy(model(batch.masked_fill(hidden, 0), keep=hidden), batch[hidden])


# 1: inputs_constant


@pytest.mark.parametrize("loss", [everywhere, at_hidden_places])
def test_a_head_with_other_rows_than_the_batch_is_not_taken_for_constant_inputs(loss: Loss) -> None:
    batches: list[Any] = [(row[:, :-1], row[:, 1:]) for row in tokens(13)] if loss is everywhere else tokens()
    assert causes(data.check, Model(flat=True), batches, loss, lr=1e-6) == []


def test_inputs_that_do_not_reach_a_flat_head_are_still_found() -> None:
    batches = [(row[:, :-1], row[:, 1:]) for row in tokens(13)]
    assert causes(data.check, Model(flat=True, factor=0.0), batches, everywhere, lr=1e-6) == ["inputs_constant"]


# 2: padding_used


def rows(named: str = "attention_mask") -> list[dict[str, Tensor]]:
    """Rows of different length, filled up with token 0."""
    found = []
    for row in tokens():
        real = torch.arange(12) < torch.randint(4, 13, (len(row), 1))
        found.append({"x": (row % 11 + 1).masked_fill(~real, 0), named: real.long(), "y": row[:, 0] % 3})
    return found


def of_a_row(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["y"])


def test_a_model_that_finds_the_padding_by_itself_uses_none() -> None:
    assert causes(padding.check, Model(3, causal=False, pooled=True, pad=0), rows(), of_a_row) == []


@pytest.mark.parametrize("named", ["attention_mask", "anything"])
def test_padding_that_is_seen_is_found_whatever_its_mask_is_called(named: str) -> None:
    assert causes(padding.check, Model(3, causal=False, pooled=True), rows(named), of_a_row) == ["padding_used"]


def with_kinds(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch["x"], batch["kind"]), batch["y"])


@pytest.mark.parametrize("handed_on", [True, False])
def test_two_kinds_of_tokens_are_not_taken_for_padding(handed_on: bool) -> None:
    found = []
    for row in tokens():
        kind = torch.arange(12) < torch.randint(4, 9, (len(row), 1))
        found.append({"x": row, "kind": kind.long(), "is_question": kind, "y": row[:, 0] % 3})
    model, loss = Model(3, causal=False, pooled=True, kinds=True), with_kinds if handed_on else of_a_row
    assert causes(padding.check, model, found, loss) == []


# 3: labels_unrelated


def test_labels_of_which_one_is_rare_are_related_if_they_follow_from_the_inputs() -> None:
    x = torch.randn(24, 48, 10)
    rare = (x[..., 0] + x[..., 1] > 2.3).long()
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2))
    assert causes(labels.check, model, list(zip(x, rare, strict=True)), once_a_row) == []
    shuffled = rare.flatten()[torch.randperm(rare.numel())].view_as(rare)
    assert causes(labels.check, model, list(zip(x, shuffled, strict=True)), once_a_row) == ["labels_unrelated"]


def test_parity_is_too_hard_for_the_forest_and_yet_not_unrelated() -> None:
    x = torch.randint(2, (24, 48, 30)).float()
    parity = (x[..., [3, 11, 20]].sum(-1) % 2).long()
    model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))
    assert causes(labels.check, model, list(zip(x, parity, strict=True)), once_a_row) == []


def test_a_product_of_signs_is_too_hard_for_the_forest_and_it_says_so() -> None:
    x = torch.randn(24, 48, 30)
    odd = (x[..., [3, 11, 20]] > 0).sum(-1) % 2
    model = nn.Sequential(nn.Linear(30, 32), nn.ReLU(), nn.Linear(32, 2))
    (one,) = found(labels.check, model, list(zip(x, odd, strict=True)), once_a_row)
    assert one.sure <= 0.6
    assert "may not find" in one.evidence[-1]


# 4: attention_axis


def test_experts_with_a_capacity_are_neither_attention_over_the_batch_nor_a_leak() -> None:
    batches = [(row[:, :-1], row[:, 1:]) for row in tokens(13)]
    assert causes(attention_axis.check, Model(experts=True), batches, everywhere) == []
    assert causes(sight.check, Model(experts=True), batches, everywhere) == []


def test_attention_over_the_batch_is_found_beside_such_experts() -> None:
    class Sideways(Block):
        def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
            return super().forward(x.transpose(0, 1), seen).transpose(0, 1)

    model = Model(causal=False, experts=True)
    model.blocks[0] = Sideways(False)
    batches = [(row[:, :-1], row[:, 1:]) for row in tokens(13)]
    assert causes(attention_axis.check, model, batches, everywhere) == ["attention_axis"]


# 5: labels_misaligned


class TwoHeads(Model):
    def __init__(self) -> None:
        super().__init__(16)
        self.first, self.second = nn.Linear(16, 12), nn.Linear(16, 12)

    def forward(self, tokens: Tensor, token_type_ids: Tensor | None = None, keep: Tensor | None = None) -> Any:
        hidden = super().forward(tokens)
        return self.first(hidden), self.second(hidden)


def one_and_two_ahead(model: nn.Module, batch: Tensor) -> Tensor:
    first, second = model(batch[:, :-2])
    one = F.cross_entropy(first.flatten(0, 1), batch[:, 1:-1].flatten())
    return 0.2 * one + F.cross_entropy(second.flatten(0, 1), batch[:, 2:].flatten())


def test_a_second_head_may_ask_for_the_token_after_the_next() -> None:
    assert causes(targets.check, TwoHeads(), tokens(14), one_and_two_ahead) == []


def test_only_the_token_after_the_next_is_still_a_double_shift() -> None:
    batches = [(row[:, :-2], row[:, 2:]) for row in tokens(14)]
    (one,) = found(targets.check, Model(), batches, everywhere)
    assert one.cause == "labels_misaligned"
    assert one.numbers["offset"] == 2
    assert one.sure > 0.8


def test_a_delayed_copy_that_is_learned_is_no_misalignment_and_one_that_is_not_is_no_certainty() -> None:
    batches = [(row, F.pad(row, (2, 0))[:, :12]) for row in torch.randint(12, (24, 16, 12))]
    assert causes(targets.check, Model(), batches, everywhere, lr=3e-3, steps=60) == []
    (one,) = found(targets.check, Model(), batches, everywhere, lr=1e-7)
    assert one.numbers["offset"] == -2
    assert one.sure <= 0.6


def two_steps_on(model: nn.Module, batch: Any) -> Tensor:
    return F.mse_loss(model(batch[:, :-2]), batch[:, 2:])


def test_a_forecast_of_values_two_steps_on_is_a_task_and_is_told_in_values() -> None:
    wave = torch.sin(6 * torch.rand(24, 16, 1, 3) + 0.4 * torch.arange(14)[:, None])
    assert causes(targets.check, Model(3, 0), list(wave), two_steps_on, lr=3e-3) == []
    (one,) = found(targets.check, Model(3, 0), list(wave), two_steps_on, lr=1e-8)
    assert one.sure <= 0.6
    assert "token" not in str(one)
    assert "logits" not in str(one)


# 6: positions_missing


def clouds() -> list[Any]:
    points = torch.randn(24, 16, 20, 3)
    points[:, ::2] /= points[:, ::2].norm(dim=-1, keepdim=True)
    return [(one, torch.arange(16) % 2) for one in points]


def test_a_set_transformer_that_learns_needs_no_positions() -> None:
    assert causes(positions.check, Model(2, 0, causal=False, pooled=True, positions=False), clouds(), once_a_row, lr=1e-4) == []


def test_a_model_without_positions_is_told_so_with_code_that_runs() -> None:
    (one,) = found(positions.check, Model(2, 0, causal=False, pooled=True, positions=False), clouds(), once_a_row, lr=1e-7)
    assert one.sure <= 0.5
    assert "The model has no positions" in str(one)
    assert "added to" not in str(one)
    names: dict[str, Any] = {"torch": torch, "x": torch.zeros(2, 20, 16)}
    exec(one.code, names)
    assert names["x"].abs().sum() > 0
    assert names["x"].shape == (2, 20, 16)


# 7: loss_misuse


class Slots(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.slots, self.out = nn.Parameter(torch.randn(4, 8)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.slots.expand(len(x), -1, -1) + x.mean())  # type: ignore[no-any-return]


def nearest(model: nn.Module, x: Tensor) -> Tensor:
    return ((model(x)[:, :, None] - x[:, None]) ** 2).sum(-1).min(1).values.mean()  # type: ignore[no-any-return]


def nearest_of_all(model: nn.Module, x: Tensor) -> Tensor:
    """The same with axes that PyTorch puts in itself."""
    return ((model(x)[0][:, None] - x[0]) ** 2).sum(-1).min(0).values.mean()  # type: ignore[no-any-return]


@pytest.mark.parametrize("loss", [nearest, nearest_of_all])
def test_pairs_that_are_chosen_among_are_meant(loss: Loss) -> None:
    assert causes(loss_form.check, Slots(), list(torch.randn(4, 16, 20, 3)), loss) == []


@pytest.mark.parametrize("loss", [lambda m, b: ((m(b[0]) - b[1]) ** 2).mean(), lambda m, b: (b[1] - m(b[0])).abs().mean()])
def test_a_column_against_a_row_is_still_found(loss: Loss) -> None:
    x = torch.randn(4, 16, 5)
    assert causes(loss_form.check, nn.Linear(5, 1), [(one, one[:, 0]) for one in x], loss) == ["loss_misuse"]


class Alike(nn.Module):
    def __init__(self, squash: bool) -> None:
        super().__init__()
        self.layer, self.squash = nn.Linear(20, 16), squash

    def forward(self, pairs: Tensor) -> Tensor:
        a, b = (self.layer(pairs).relu() + 0.01).unbind(1)
        return self.layer(a @ self.layer.weight)[:, :1].sigmoid().squeeze(-1) if self.squash else F.cosine_similarity(a, b)


def are_alike(model: nn.Module, batch: Any) -> Tensor:
    return F.binary_cross_entropy_with_logits(model(batch), (torch.arange(len(batch)) % 2).float())


def test_logits_between_zero_and_one_are_a_misuse_only_behind_a_sigmoid() -> None:
    batches = list(torch.randn(4, 32, 2, 20))
    with torch.no_grad():
        given = Alike(False)(batches[0])
    assert bool(((given > 0) & (given < 1)).all())  # as probabilities are
    assert causes(loss_form.check, Alike(False), batches, are_alike) == []
    assert causes(loss_form.check, Alike(True), batches, are_alike) == ["loss_misuse"]


# 8: mask_blocks_context


def test_a_model_that_takes_every_token_for_itself_has_no_mask() -> None:
    model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 12))
    assert causes(sight.check, model, [(row, (7 * row + 3) % 12) for row in tokens()], everywhere, lr=1e-7) == []


# 9: data_repeated


@dataclass
class Batch:
    tokens: Tensor
    labels: Tensor

    def __getitem__(self, i: int) -> Tensor:
        return (self.tokens, self.labels)[i]


def test_a_batch_that_is_a_dataclass_is_seen_to_repeat() -> None:
    row = tokens(13)[0]
    (one,) = found(data.check, Model(), [Batch(row[:, :-1], row[:, 1:])] * 24, everywhere)
    assert one.cause == "data_repeated"
    assert one.sure == 0.9
    assert one.numbers["rows"] == 24 * 16


class Flat(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(12, 8), nn.Linear(8 * length, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.head(0.1 * self.embedding(tokens).flatten(1))
        return logits


def test_rows_repeat_without_fault_where_no_more_different_ones_are_possible() -> None:
    pairs = torch.randint(12, (24, 64, 2))
    assert causes(data.check, Flat(2), [(row, row[:, 0] % 3) for row in pairs], once_a_row) == []


@pytest.mark.parametrize(("rows", "length"), [(2, 4), (3, 6), (6, 4), (12, 2)])
def test_a_few_rows_that_repeat_are_told_though_their_own_values_allow_no_more(rows: int, length: int) -> None:
    known = (torch.arange(rows)[:, None] + torch.arange(length)).remainder(12)
    repeated = known[torch.randint(rows, (24, 64))]
    assert causes(data.check, Flat(length), [(row, row[:, 0] % 3) for row in repeated], once_a_row) == ["data_repeated"]


@pytest.mark.parametrize(("rows", "evenly"), [(200, True), (200, False), (12, True)])
def test_rows_that_repeat_may_be_all_the_data_if_there_are_many_and_none_is_preferred(rows: int, evenly: bool) -> None:
    likely = torch.ones(rows) if evenly else 0.9 ** torch.arange(rows)
    known = torch.randint(12, (rows, 8))[torch.multinomial(likely, 24 * 64, replacement=True)].view(24, 64, 8)
    (one,) = found(data.check, Flat(8), [(row, row[:, 0] % 3) for row in known], once_a_row)
    assert one.cause == "data_repeated"
    assert one.sure == (0.5 if evenly and rows > 64 else 0.9)
    assert ("no more data" in one.advice) == (one.sure == 0.5)


def test_one_large_batch_again_and_again_may_be_all_the_data() -> None:
    row = tokens(13, size=128)[0]
    (one,) = found(data.check, Model(), [(row[:, :-1], row[:, 1:])] * 5, everywhere)
    assert one.cause == "data_repeated"
    assert one.sure <= 0.5
    assert "full-batch" in one.advice


def test_tensors_of_a_batch_are_found_with_their_names() -> None:
    batch = {"a": [torch.zeros(1)], "b": Batch(torch.zeros(2), torch.zeros(3)), "c": "text"}
    assert [(name, len(one)) for name, one in named_tensors(batch)] == [("a", 1), ("tokens", 2), ("labels", 3)]


# rows that end at different places, and labels that number samples


@pytest.mark.parametrize("shortest", [10, 8, 4])
def test_labels_that_mark_the_ends_of_rows_are_padding_however_little_there_is_of_it(shortest: int) -> None:
    batches = []
    for row in tokens(13):
        end = torch.arange(13) >= torch.randint(shortest, 14, (len(row), 1))
        padded = (row + 1).masked_fill(end, 0)
        batches.append((padded[:, :-1], padded[:, 1:]))

    def without_padding(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=0)

    def without_a_class(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=5)

    assert causes(targets.check, Model(13, 13), batches, without_padding) == []
    assert causes(targets.check, Model(13, 13), batches, without_a_class) == ["labels_ignored"]


def test_a_class_that_ends_every_row_is_a_class() -> None:
    rows = [torch.cat([row % 11, torch.full((len(row), 1), 11)], dim=1) for row in tokens(12)]

    def without_the_end(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), ignore_index=11)

    assert causes(targets.check, Model(), [(row[:, :-1], row[:, 1:]) for row in rows], without_the_end) == ["labels_ignored"]


def test_a_class_of_rows_that_is_ignored_is_a_class() -> None:
    def without_the_first(model: nn.Module, batch: Any) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1], ignore_index=0)

    batches = [(row, row[:, 0] % 2) for row in tokens()]
    assert causes(targets.check, Model(2, pooled=True), batches, without_the_first) == ["labels_ignored"]


def test_which_sample_belongs_to_which_is_not_asked_of_a_forest() -> None:
    pictures = torch.randn(24, 32, 6)
    model = nn.Linear(6, 6)

    def contrastive(model: nn.Module, batch: Tensor) -> Tensor:
        return F.cross_entropy(0.01 * model(batch) @ model(batch + 0.1).T, torch.arange(len(batch)))

    assert causes(labels.check, model, list(pictures), contrastive) == []


@pytest.mark.parametrize("related", [True, False])
def test_labels_are_looked_at_in_batches_of_different_lengths_too(related: bool) -> None:
    batches = []
    for length, row in zip([8, 9, 10, 12] * 6, tokens(13, size=32), strict=True):
        asked = row[:, 1 : length + 1] if related else torch.randint(12, (len(row), length))
        batches.append((row[:, :length], asked))
    assert causes(labels.check, Model(), batches, everywhere) == ([] if related else ["labels_unrelated"])


@pytest.mark.parametrize("related", [True, False])
def test_labels_of_samples_of_different_lengths_are_looked_at_too(related: bool) -> None:
    batches = []
    for length, row in zip([8, 9, 10, 12] * 6, tokens(12, size=32), strict=True):
        batches.append((row[:, :length], row[:, 0] if related else torch.randint(12, (len(row),))))
    assert causes(labels.check, Model(pooled=True), batches, once_a_row) == ([] if related else ["labels_unrelated"])


def test_a_loss_that_falls_to_chance_is_called_too_early_to_tell() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    with torch.no_grad():
        list(model.parameters())[-1][0] = 8.0
    batches = [(x, x[:, :4].argmax(dim=1)) for x in torch.randn(24, 64, 8)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    found = eureka.diagnose(
        model, batches, loss=lambda model, batch: F.cross_entropy(model(batch[0]), batch[1]), optimizer=optimizer
    )
    assert (found.findings[0].cause, found.findings[0].kind) == ("healthy", "learning")
    assert found.findings[0].sure < 0.7
    assert "too early to tell" in found.findings[0].evidence[1]


# Sentences that are said beside the right one


class Detached(nn.Module):
    """The graph is cut before the head; or, with `cut`, most of what the model is given is."""

    def __init__(self, cut: bool = False) -> None:
        super().__init__()
        self.block, self.head, self.cut = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), nn.Linear(8, 3), cut

    def forward(self, x: Tensor) -> Tensor:
        x = self.block(x[:, :3] if self.cut else x).mean(dim=1)
        logits: Tensor = self.head(x if self.cut else x.detach())
        return logits


@pytest.mark.parametrize("cut", [True, False])
def test_a_graph_that_is_cut_hides_no_input_from_the_model(cut: bool) -> None:
    rows = [(x, torch.randint(3, (16,))) for x in torch.randn(4, 16, 9, 8)]
    assert causes(sight.check, Detached(cut), rows, once_a_row, lr=1e-7) == (["mask_blocks_context"] if cut else [])


class Sure(nn.Module):
    """Answers class 1 everywhere, surer than numbers can tell; with a weight of 0 class 1 never counts."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 3)
        with torch.no_grad():
            self.head.bias[1] = 1e4

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x)
        return logits


@pytest.mark.parametrize("sure", [True, False])
def test_a_class_that_is_surely_answered_is_not_left_out_of_the_loss(sure: bool) -> None:
    rows = [(x, torch.arange(48) % 3) for x in torch.randn(4, 48, 4)]
    weight = torch.tensor([1.0, 0.0, 1.0])

    def loss(model: nn.Module, batch: Any) -> Tensor:
        logits = model(batch[0])
        return F.cross_entropy(logits, batch[1]) if sure else F.cross_entropy(logits, batch[1], weight=weight)

    assert causes(targets.check, Sure() if sure else nn.Linear(4, 3), rows, loss) == ([] if sure else ["labels_ignored"])


class Padded(nn.Module):
    """Classifies rows of tokens by a place of its own; 0 is padding, which attention does not look at, or looks at alone."""

    def __init__(self, inverted: bool = False, empty: bool = False) -> None:
        super().__init__()
        self.embed, self.own, self.head = nn.Embedding(12, 8), nn.Parameter(torch.randn(1, 1, 8)), nn.Linear(8, 3)
        self.block, self.inverted = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), inverted
        if empty:
            self.embed.requires_grad_(False).weight.zero_()

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = (tokens != 0) if self.inverted else (tokens == 0)
        x = torch.cat([self.own.expand(len(tokens), -1, -1), self.embed(tokens)], dim=1)
        logits: Tensor = self.head(self.block(x, src_key_padding_mask=F.pad(hidden, (1, 0)))[:, 0])
        return logits


def padded() -> list[Any]:
    rows = torch.randint(1, 12, (24, 32, 10))
    rows[torch.arange(10) >= torch.randint(3, 10, (24, 32, 1))] = 0
    return [(row, row[:, 0] % 3) for row in rows]


def test_a_mask_that_shows_only_padding_hides_every_token() -> None:
    (one,) = found(sight.check, Padded(inverted=True), padded(), once_a_row, lr=1e-7)
    assert one.cause == "mask_blocks_context"
    assert "none of them changes the output" in one.evidence[0]
    assert causes(sight.check, Padded(), padded(), once_a_row, lr=1e-7) == []


@pytest.mark.parametrize("full", [True, False], ids=["without padding", "with padding"])
def test_frozen_embeddings_of_zero_are_lost_inputs_and_no_mask(full: bool) -> None:
    rows = [(row.clamp_min(1), label) if full else (row, label) for row, label in padded()]
    assert causes(sight.check, Padded(empty=True), rows, once_a_row, lr=1e-7) == []
    (one,) = found(data.check, Padded(empty=True), rows, once_a_row, lr=1e-7)
    assert one.cause == "inputs_constant"
    assert "frozen" in one.advice
    assert causes(data.check, Padded(), rows, once_a_row, lr=1e-7) == []


def test_frozen_weights_that_are_sure_of_something_else_are_not_said_to_be_no_help() -> None:
    model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 12))
    found(movement.check, model, [(row, (7 * row + 3) % 12) for row in tokens()], everywhere, lr=1e-2, steps=100)
    model.requires_grad_(False)[1].bias.requires_grad_(True)
    other = [(row, (7 * row + 5) % 12) for row in tokens()]
    assert causes(movement.check, model, other, everywhere, lr=1e-2) == []
    with torch.no_grad():
        model.get_parameter("3.weight").normal_(0.0, 0.02)
    assert causes(movement.check, model, other, everywhere, lr=1e-2) == ["no_gradient"]


def test_the_line_that_lowers_dropout_reaches_attention_and_raises_none() -> None:
    model = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32, 0.95, batch_first=True), nn.Dropout(0.0), nn.Linear(16, 3))
    rows = [(x, x[:, :, :3].argmax(dim=2)) for x in torch.randn(24, 16, 4, 16)]
    (one,) = found(dropout.check, model, rows, everywhere, lr=1e-3)
    exec(one.code, {"model": model})
    assert sorted(dropout._rates(model)) == [0.0, *[0.1] * (len(dropout._rates(model)) - 1)]


@pytest.mark.parametrize("worn", [True, False])
def test_who_lowers_a_decay_that_has_worn_the_weights_away_is_told_to_begin_again(worn: bool) -> None:
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    rows = [(x, x[:, :3].argmax(dim=1)) for x in torch.randn(24, 64, 16)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=100.0)
    for x, y in rows * 10 if worn else []:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    case = make_case(model, rows, loss=once_a_row, optimizer=optimizer, step=None, most=24)
    (one,) = decay.check(Exam(case))
    assert ("from fresh weights" in one.evidence[0]) == worn
    assert ("begin again" in one.advice) == worn
