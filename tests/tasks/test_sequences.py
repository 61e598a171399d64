"""Tasks over sequences: rules one sample at a time, levels against predictors that know just so much."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from eureka.errors import RequestError
from eureka.tasks.classification import Classification, occupancies
from eureka.tasks.induction import Induction
from eureka.tasks.registry import TASKS
from eureka.tasks.regression import Regression
from eureka.tasks.sums import PrefixSum, WindowSum
from eureka.tasks.task import IGNORED, Batch, Repeats, SequenceTask, Task

N = 10_000


def logits(belief: Tensor, smoothing: float) -> Tensor:
    return ((1 - smoothing) * belief + smoothing / belief.shape[-1]).clamp_min(1e-30).log()


@pytest.mark.parametrize("window", [2, 3])
def test_each_window_sum_is_of_the_last_numbers(window: int) -> None:
    batch = WindowSum(window=window).sample(N, Generator().manual_seed(0))
    for tokens, labels in zip(batch.inputs.tolist(), batch.labels.tolist(), strict=True):
        x, given = tokens[:16], tokens[17:]
        expected = [sum(x[max(0, i - window + 1) : i + 1]) % 17 for i in range(16)]
        assert tokens[16] == 17  # the separator
        assert labels == [IGNORED] * 16 + expected
        assert given == expected[:-1]


def test_each_prefix_sum_is_of_all_numbers_so_far() -> None:
    batch = PrefixSum().sample(N, Generator().manual_seed(0))
    for tokens, labels in zip(batch.inputs.tolist(), batch.labels.tolist(), strict=True):
        expected = [total % 17 for total in itertools.accumulate(tokens[:16])]
        assert labels[16:] == expected
        assert tokens[17:] == expected[:-1]


@pytest.mark.parametrize("task", [WindowSum(), PrefixSum(), WindowSum(numbers=8, modulus=5, window=3)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_shortcut_of_the_sums_is_to_copy_the_first_number(task: WindowSum | PrefixSum, smoothing: float) -> None:
    batch = task.sample(N, Generator().manual_seed(1))
    belief = torch.full((N, 2 * task.numbers, task.classes), 1 / task.classes)
    belief[:, task.numbers] = torch.nn.functional.one_hot(batch.inputs[:, 0], task.classes).float()
    check_level(task, batch, belief, 0, smoothing)
    known = torch.nn.functional.one_hot(batch.labels.clamp_min(0), task.classes).float()
    check_level(task, batch, known, -1, smoothing)


def check_level(task: SequenceTask | Classification, batch: Batch, belief: Tensor, level: int, smoothing: float) -> None:
    """Loss and accuracy of a predictor are the level's, up to the error of ten thousand samples."""
    expected, outputs = task.levels(smoothing)[level], logits(belief, smoothing)
    assert task.loss(outputs, batch, smoothing).item() == pytest.approx(expected.loss, abs=0.03)
    assert task.accuracy(outputs, batch).item() == pytest.approx(expected.accuracy, abs=0.015)


def test_a_sum_of_which_one_term_is_hidden_is_uniform() -> None:
    """What the shortcut level rests on: neither the other term nor the sums before tell anything."""
    batch = WindowSum().sample(40_000, Generator().manual_seed(2))
    x, y = batch.steps["number"], batch.steps["sum"]
    for known in (x[:, 4], x[:, 3], y[:, 3]):  # of y₅ = x₄ + x₅, counted from one
        table = (known * 17 + y[:, 4]).bincount(minlength=17 * 17).double()
        chi_squared = ((table - 40_000 / 289) ** 2 / (40_000 / 289)).sum().item()
        assert chi_squared < 288 + 4 * math.sqrt(2 * 288)


def test_looking_up_the_last_occurrence_solves_induction() -> None:
    task = Induction()
    batch = task.sample(2_000, Generator().manual_seed(3))
    for tokens, labels, lag in zip(batch.inputs.tolist(), batch.labels.tolist(), batch.steps["lag"].tolist(), strict=True):
        assert 8 <= lag <= 16
        assert len(set(tokens[:lag])) == lag
        for place, label in enumerate(labels):
            if place < lag:
                assert label == IGNORED
                continue
            before = max(i for i in range(place) if tokens[i] == tokens[place])
            assert label == tokens[before + 1]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_levels_of_induction_are_those_of_readers_without_order(smoothing: float) -> None:
    task = Induction(length=40)
    batch = task.sample(1_500, Generator().manual_seed(4))
    seen, counted = (torch.zeros(1_500, 40, task.classes) for _ in range(2))
    for sample, (tokens, labels) in enumerate(zip(batch.inputs.tolist(), batch.labels.tolist(), strict=True)):
        counts: dict[int, int] = {}
        for place, token in enumerate(tokens):
            counts[token] = counts.get(token, 0) + 1
            if labels[place] == IGNORED:
                continue
            others = [other for other in counts if other != token]
            seen[sample, place, others] = 1 / len(others)
            fewest = [other for other in others if counts[other] == min(counts.values())]
            counted[sample, place, fewest] = 1 / len(fewest)
    check_level(task, batch, seen, 0, smoothing)
    check_level(task, batch, counted, 1, smoothing)


def test_lags_that_do_not_fit_are_told() -> None:
    with pytest.raises(RequestError, match="lags from 8 to 16 do not fit 10 different tokens"):
        TASKS.build("induction", {"vocabulary": 10})


def test_least_squares_reaches_the_floor_of_regression_and_zero_the_plateau() -> None:
    task = Regression(dim=3, pairs=8)
    batch = task.sample(2_000, Generator().manual_seed(5))
    tokens = batch.inputs.reshape(2_000, 8, 2, 3)
    x, y = tokens[:, :, 0].double().numpy(), tokens[:, :, 1, 0].double().numpy()
    assert np.allclose(y, batch.labels.numpy(), atol=1e-5)
    assert not tokens[:, :, 1, 1:].any()
    answers = torch.zeros(2_000, 16, 1)
    for sample in range(2_000):
        for known in range(1, 8):
            w = np.linalg.lstsq(x[sample, :known], y[sample, :known], rcond=None)[0]
            answers[sample, 2 * known, 0] = float(x[sample, known] @ w)
    plateau, floor = task.levels()
    assert task.loss(answers, batch).item() == pytest.approx(floor.loss, rel=0.06)
    assert task.accuracy(answers, batch).item() == pytest.approx(floor.accuracy, abs=0.03)
    nothing = torch.zeros(2_000, 16, 1)
    assert task.loss(nothing, batch).item() == pytest.approx(plateau.loss, rel=0.06) == pytest.approx(3, rel=0.06)
    assert task.accuracy(nothing, batch).item() == pytest.approx(0, abs=0.06)


def test_regression_looks_only_at_the_answers_to_x() -> None:
    task = Regression()
    batch = task.sample(4, Generator().manual_seed(6))
    outputs = torch.randn(4, 32, 1, generator=Generator().manual_seed(7))
    disturbed = outputs.clone()
    disturbed[:, 1::2] += 100
    assert torch.equal(task.loss(outputs, batch), task.loss(disturbed, batch))


@pytest.mark.parametrize("split", ["train", "validation"])
def test_the_nearest_item_of_the_context_has_the_label(split: str) -> None:
    task = Classification(burstiness=2)
    batch = task.sample(N, Generator().manual_seed(8), split)  # type: ignore[arg-type]
    items, last = batch.inputs[:, 0:-1:2], batch.inputs[:, -1:]
    nearest = (items - last).norm(dim=-1).argmin(dim=1)
    label_tokens = batch.inputs[:, 1::2][torch.arange(N), nearest]
    read = torch.cdist(label_tokens, task.label_tokens).argmin(dim=1)
    assert (read == batch.labels).float().mean() > 0.999
    assert bool((batch.steps["matches"].sum(dim=1) == 2).all())
    assert bool(batch.steps["matches"][torch.arange(N), nearest].float().mean() > 0.999)


@pytest.mark.parametrize("settings", [{}, {"context": 6, "burstiness": 1, "labels": 4}, {"context": 8, "burstiness": 4}])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_shortcut_of_classification_is_to_name_a_label_of_the_context(settings: dict[str, int], smoothing: float) -> None:
    task = Classification(**settings)
    batch = task.sample(N, Generator().manual_seed(9), "validation")
    belief = torch.nn.functional.one_hot(batch.steps["context_labels"], task.classes).float().mean(dim=1)
    check_level(task, batch, belief, 0, smoothing)


def test_occupancies_are_those_of_all_ways_to_throw() -> None:
    for balls, boxes in ((4, 3), (3, 5), (5, 2)):
        tally: dict[tuple[int, ...], float] = {}
        for throw in itertools.product(range(boxes), repeat=balls):
            counts = tuple(sorted((throw.count(box) for box in set(throw)), reverse=True))
            tally[counts] = tally.get(counts, 0) + 1 / boxes**balls
        assert dict(occupancies(balls, boxes)) == pytest.approx(tally)


def test_training_classes_keep_their_labels_and_validation_classes_have_none() -> None:
    task = Classification(noise=0.0, item_classes=64)
    known = task.centres
    for split, nearby in (("train", True), ("validation", False)):
        batch = task.sample(500, Generator().manual_seed(10), split)  # type: ignore[arg-type]
        distance, which = torch.cdist(batch.inputs[:, -1], known).min(dim=1)
        assert bool((distance < 1e-3).all()) is nearby
        agree = (task.label_of[which] == batch.labels).float().mean().item()
        assert agree == 1 if nearby else agree < 0.15


def test_without_burstiness_the_last_item_is_rarely_in_the_context() -> None:
    batch = Classification(p_bursty=0.25, noise=0.0).sample(4_000, Generator().manual_seed(11))
    items, last = batch.inputs[:, 0:-1:2], batch.inputs[:, -1:]
    found = ((items - last).norm(dim=-1).min(dim=1).values < 1e-4).float().mean().item()
    assert found == pytest.approx(0.25 + 0.75 * 4 / 1024, abs=0.03)


@pytest.mark.parametrize("name", ["window_sum", "prefix_sum", "induction", "regression", "classification", "chain"])
def test_the_same_generator_state_gives_the_same_sequences(name: str) -> None:
    task = TASKS.build(name)
    first, again = (task.sample(8, Generator().manual_seed(12)) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs)
    assert torch.equal(first.labels, again.labels)
    assert first.inputs.shape == (8, *task.input_shape)


def test_sequence_accuracy_counts_only_what_is_asked() -> None:
    task = WindowSum(numbers=2, modulus=3)
    batch = Batch(torch.zeros(1, 4, dtype=torch.long), torch.tensor([[IGNORED, IGNORED, 1, 2]]), {})
    outputs = torch.zeros(1, 4, 3)
    outputs[0, 2, 1], outputs[0, 3, 0], outputs[0, 0, 0] = 5, 5, 5
    assert task.accuracy(outputs, batch).item() == 0.5
    expected = -(outputs[0, 2].log_softmax(0)[1] + outputs[0, 3].log_softmax(0)[2]) / 2
    torch.testing.assert_close(task.loss(outputs, batch), expected)


def test_a_chain_is_the_same_rule_on_tiles_and_on_digits() -> None:
    on_tiles, on_digits = (TASKS.build("chain", {"on": on, "decisions": 4}) for on in ("tiles", "digits"))
    assert on_tiles.levels() == on_digits.levels()
    assert len(on_tiles.levels()) == 4
    assert on_tiles.input_shape == (48, 16)
    assert on_digits.input_shape == (1, 16, 48)


def targets(repeats: Repeats) -> Tensor:
    """(n, N, N): where an induction head at each asked place looks, place by place."""
    n, length = repeats.tokens.shape
    found = torch.zeros(n, length, length, dtype=torch.bool)
    for b, i, j in itertools.product(range(n), range(length), range(length)):
        found[b, i, j] = bool(repeats.asked[b, i]) and 0 < j < i and bool(repeats.tokens[b, j - 1] == repeats.tokens[b, i])
    return found


def test_an_induction_head_finds_the_answer_of_every_place_that_is_asked_for() -> None:
    task = Induction(vocabulary=12, length=14, shortest_lag=3, longest_lag=5)
    batch = task.sample(8, Generator().manual_seed(0))
    looks = targets(task.repeats(batch))
    assert torch.equal(looks.any(-1), batch.labels != IGNORED)
    b, i, j = looks.nonzero(as_tuple=True)
    assert torch.equal(batch.inputs[b, j], batch.labels[b, i])


def test_the_last_item_finds_its_label_behind_the_items_of_its_class() -> None:
    task = Classification(context=6, burstiness=2, labels=5, item_classes=8)
    batch = task.sample(16, Generator().manual_seed(0))
    b, i, j = targets(task.repeats(batch)).nonzero(as_tuple=True)
    assert len(b) == 2 * 16
    assert (i == 12).all()
    found = batch.steps["context_labels"][b, (j - 1) // 2]
    assert (j % 2 == 1).all()
    assert torch.equal(found, batch.labels[b])


@pytest.mark.parametrize("task", [Regression(), WindowSum()])
def test_tasks_that_repeat_nothing_say_so(task: Task) -> None:
    assert task.repeats(task.sample(2, Generator().manual_seed(0))) is None
