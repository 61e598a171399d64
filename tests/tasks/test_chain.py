"""The rule of the multi-step tasks against a reader that goes through one sample at a time."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Generator

from eureka.tasks.decision_rule import DecisionRule, smoothed_entropy


def follow(tiles: list[list[int]], indicator_classes: int) -> tuple[int, list[bool]]:
    """The label of one sample and its answers, read off the tiles the way the rule is told to people."""
    pair = (tiles[0][0], tiles[0][3])
    answers = [pair[0] == pair[1]]
    for block in tiles[1:]:
        pair = (block[0], block[3]) if answers[-1] else (block[1], block[2])
        answers.append(pair[0] == pair[1])
    target = tiles[0][1] if answers[-1] else tiles[0][2]
    return target - indicator_classes, answers


def posterior(tiles: list[list[int]], indicator_classes: int, known: int, p_same: float) -> dict[int, float]:
    """What a reader believes of the label who compares pairs only in the last `known - 1` blocks."""
    compared = tiles[len(tiles) - known + 1 :]
    belief: dict[int, float] = {}
    for answer, chance in ((True, p_same), (False, 1 - p_same)):
        for block in compared:
            first, second = (block[0], block[3]) if answer else (block[1], block[2])
            answer = first == second
        label = tiles[0][1 if answer else 2] - indicator_classes
        belief[label] = belief.get(label, 0.0) + chance
    return belief


@pytest.mark.parametrize("decisions", [2, 3, 4])
@pytest.mark.parametrize("indicator_classes", [2, 4])
def test_labels_and_answers_follow_the_rule_sample_by_sample(decisions: int, indicator_classes: int) -> None:
    chain = DecisionRule(decisions=decisions, indicator_classes=indicator_classes, p_same=0.4)
    drawn = chain.draw(10_000, Generator().manual_seed(1))
    assert drawn.tiles.shape == (10_000, decisions - 1, 4)
    answers = torch.stack([drawn.steps[f"decision_{i}"] for i in range(1, decisions)], dim=1).tolist()
    for tiles, label, seen in zip(drawn.tiles.tolist(), drawn.labels.tolist(), answers, strict=True):
        expected, expected_answers = follow(tiles, indicator_classes)
        assert label == expected
        assert seen == [int(answer) for answer in expected_answers]


@pytest.mark.parametrize(("decisions", "p_same"), [(2, 0.5), (2, 0.3), (3, 0.5), (3, 0.3), (4, 0.5), (4, 0.7)])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_levels_are_what_simulated_readers_of_the_last_steps_reach(decisions: int, p_same: float, smoothing: float) -> None:
    n, classes = 20_000, 10
    chain = DecisionRule(decisions=decisions, target_classes=classes, p_same=p_same)
    drawn = chain.draw(n, Generator().manual_seed(2))
    levels = chain.levels(smoothing)
    assert len(levels) == decisions
    for known, level in enumerate(levels[:-1], start=1):
        losses, right = [], []
        for tiles, label in zip(drawn.tiles.tolist(), drawn.labels.tolist(), strict=True):
            belief = posterior(tiles, chain.indicator_classes, known, p_same)
            q = [(1 - smoothing) * belief.get(c, 0.0) + smoothing / classes for c in range(classes)]
            spread = sum(-math.log(value) for value in q if value) / classes if smoothing else 0.0
            losses.append((1 - smoothing) * -math.log(q[label]) + smoothing * spread)
            right.append(float(max(belief, key=belief.__getitem__) == label))
        loss, accuracy = torch.tensor(losses), torch.tensor(right)
        assert abs(loss.mean().item() - level.loss) < 4 * loss.std().item() / n**0.5 + 1e-6
        assert abs(accuracy.mean().item() - level.accuracy) < 4 * accuracy.std().item() / n**0.5 + 1e-6


@pytest.mark.parametrize(
    ("reading", "p_same", "smoothing"), [(0.85, 0.5, 0.1), (0.85, 0.3, 0.0), (0.6, 0.5, 0.0), (1.0, 0.5, 0.1)]
)
def test_levels_of_who_misreads_are_what_a_simulated_one_reaches(reading: float, p_same: float, smoothing: float) -> None:
    n, classes = 50_000, 10
    drawn = DecisionRule(p_same=p_same).draw(n, Generator().manual_seed(4))
    g, true = Generator().manual_seed(5), torch.stack([drawn.steps["target_1"], drawn.steps["target_2"]], dim=1)
    wrong = (true + torch.randint(1, classes, true.shape, generator=g)) % classes
    read = torch.where(torch.rand(true.shape, generator=g) < reading, true, wrong)
    confusion = torch.full((classes, classes), (1 - reading) / (classes - 1)).fill_diagonal_(reading)
    same = drawn.steps["decision_1"][:, None].bool()
    beliefs = [
        p_same * confusion[read[:, 0]] + (1 - p_same) * confusion[read[:, 1]],
        torch.where(same, confusion[read[:, 0]], confusion[read[:, 1]]),
    ]
    for belief, level in zip(beliefs, DecisionRule(p_same=p_same).levels(smoothing, reading), strict=True):
        logits = ((1 - smoothing) * belief + smoothing / classes).log()
        losses = torch.nn.functional.cross_entropy(logits, drawn.labels, label_smoothing=smoothing, reduction="none")
        right = (belief.argmax(dim=-1) == drawn.labels).float()
        assert abs(losses.mean().item() - level.loss) < 4 * losses.std().item() / n**0.5 + 1e-6
        assert abs(right.mean().item() - level.accuracy) < 4 * right.std().item() / n**0.5 + 1e-6


def test_the_last_level_is_the_floor_and_levels_only_fall() -> None:
    levels = DecisionRule(decisions=4).levels(0.1)
    assert levels[-1].accuracy == 1.0
    assert levels[-1].loss == pytest.approx(smoothed_entropy([1.0], 10, 0.1))
    assert [level.loss for level in levels] == sorted((level.loss for level in levels), reverse=True)


def test_the_two_step_plateau_is_where_the_paper_puts_it() -> None:
    plain, smoothed = DecisionRule().levels(0.0), DecisionRule().levels(0.1)
    assert plain[0].accuracy == pytest.approx(0.55)
    assert plain[0].loss == pytest.approx(0.9 * math.log(2))
    assert smoothed[0].loss == pytest.approx(1.025, abs=1e-3)
    assert smoothed[-1].loss == pytest.approx(0.500, abs=1e-3)


def test_pairs_agree_as_often_as_asked_and_classes_are_balanced() -> None:
    drawn = DecisionRule(p_same=0.3, indicator_classes=3).draw(30_000, Generator().manual_seed(3))
    assert drawn.steps["decision_1"].float().mean().item() == pytest.approx(0.3, abs=0.011)  # four standard errors
    shares = drawn.labels.bincount(minlength=10) / 30_000
    assert (shares - 0.1).abs().max() < 0.007
    assert (drawn.steps["indicator_2"].bincount(minlength=3) / 30_000 - 1 / 3).abs().max() < 0.011


def test_a_generator_in_the_same_state_draws_the_same_samples() -> None:
    first, again = (DecisionRule(decisions=3).draw(64, Generator().manual_seed(4)) for _ in range(2))
    other = DecisionRule(decisions=3).draw(64, Generator().manual_seed(5))
    assert torch.equal(first.tiles, again.tiles)
    assert torch.equal(first.labels, again.labels)
    assert not torch.equal(first.tiles, other.tiles)
