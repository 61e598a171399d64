"""What `eureka detect` says to do next, for each thing that it can see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from benchmarks.waits import Waited, looks, table
from eureka.curves.advice import advise, advise_pair
from eureka.curves.finding import Finding, examine
from eureka.curves.grid import Array
from eureka.curves.levels import Given, Level, level_of
from eureka.curves.moment import Plateau
from eureka.curves.readers.curve import Curve
from eureka.curves.together import Pair
from eureka.curves.waits import Look, known_waits, read_looks, summed

T = np.arange(1000.0)
NOISE = np.random.default_rng(0).standard_normal(1000)


def curve(values: Array, **changes: Any) -> Curve:
    taken = {"file": "log.csv", "metric": "loss", "step_name": "step", "lr": None, "role": "train"} | changes
    return Curve(steps=10.0 * T[: len(values)], values=values, points=len(values), metrics=("loss",), **taken)


def seen(values: Array, given: Given | None = None, **changes: Any) -> Finding:
    return examine(curve(values, **changes), given=given or Given())


def reasons(finding: Finding) -> list[str]:
    return [one.reason for one in advise(finding)]


SETTLED = 0.5 * np.exp(-T / 10.0) + 0.01 * NOISE
STEP = 2.0 - 1.5 / (1.0 + np.exp(-(T - 600.0) / 8.0)) + 0.02 * NOISE
BLOWN = np.where(T < 300, 0.5 + 3.0 * np.exp(-T / 80.0), 7.5) + 0.05 * NOISE
ENDED = np.maximum(1e-3 * (1.0 - T / 600.0), 0.0)


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (seen(2.0 + SETTLED), ["rest", "wait"]),
        (seen(2.0 + SETTLED, Given(floor=1.0)), ["wait"]),
        (seen(2.0 + SETTLED, Given(floor=2.0)), ["floor"]),
        (seen(2.0 + SETTLED, Given(levels=(Level(name="unigram", value=2.01),))), ["level", "wait"]),
        (seen(2.0 + SETTLED, Given(levels=(Level(name="unigram", value=2.5),))), ["rest", "wait"]),
        (seen(math.log(12) + SETTLED, Given(classes=12)), ["chance", "wait"]),
        (seen(math.log(12) + SETTLED, Given(classes=20)), ["rest", "wait"]),
        (seen(math.log(10) + SETTLED), ["chance", "wait"]),
        (seen(0.1 - 0.1 * SETTLED, Given(classes=10), rising=True, metric="accuracy"), ["chance", "wait"]),
        (seen(10.0 - SETTLED, Given(classes=10), rising=True, metric="accuracy"), ["chance", "wait"]),
        (seen(2.0 + SETTLED, lr=ENDED), ["rate_ended"]),
        (seen(2.0 + SETTLED, lr=np.maximum(1e-3 * (1.0 - T / 999.0), 0.0)), ["rest", "wait"]),
        (seen(2.0 + SETTLED, lr=np.where(T < 50, 1e-3, 1e-7)), ["rate_ended"]),
        (seen(np.full(60, math.log(2)), Given(classes=2)), ["chance", "wait"]),
        (seen(np.full(1000, 2.3)), ["chance", "wait"]),
        (seen(np.zeros(1000)), ["floor"]),
        (seen(2.0 + SETTLED, lr=0.0 * T), ["rate_ended"]),
        (seen(2.0 + SETTLED, lr=ENDED + 1e-4), ["rest", "wait"]),
        (seen(STEP, Given(floor=1.5)), ["leak"]),
        (seen(STEP, Given(floor=0.5)), ["floor"]),
        (seen(BLOWN), ["diverged"]),
        (seen(-BLOWN, rising=True), ["diverged"]),
        (seen(BLOWN, role="validation"), ["past_best"]),
        (seen(3.0 * (1.0 + T) ** -0.3 + 0.01 * NOISE), ["falling"]),
        (seen(3.0 - 0.3 * (T // 100) + 0.02 * NOISE, epochs=T / 100.0), ["epochs"]),
        (seen(STEP, lr=np.where(T < 595, 0.1, 0.01)), ["rate_steps", "rest"]),
        (seen(0.999 - 0.9 * np.exp(-T / 60.0) + 1e-3 * NOISE, rising=True, metric="accuracy"), ["floor"]),
        (seen(np.where(T < 600, 2.0 + 0.2 * NOISE, 1.0 + 0.02 * NOISE)), ["unknown_rate", "rest"]),
        (seen(np.where(T < 600, 2.0 + 0.2 * NOISE, 1.0 + 0.02 * NOISE), lr=np.full(1000, 0.1)), ["rest", "wait"]),
        (seen(STEP[:700]), ["left"]),
        (seen(STEP[:8]), []),
    ],
)
def test_the_advice_depends_on_what_was_seen(finding: Finding, expected: list[str]) -> None:
    assert reasons(finding) == expected


def test_a_log_of_few_different_steps_is_too_short_to_judge_and_gets_no_advice() -> None:
    finding = examine(Curve(**{**vars(curve(STEP)), "steps": T % 2}))
    assert finding.verdict() == "too short to judge (2 points)"
    assert advise(finding) == []


@pytest.mark.parametrize("count", [8, 300])
def test_a_curve_that_ends_with_no_number_has_diverged_and_rests_nowhere(count: int) -> None:
    finding = seen(math.log(10) + SETTLED[:count], broken=np.array([3000.0, 3010.0]))
    assert finding.resting is None
    assert finding.verdict().endswith("; no number from step 3,000 on")
    [advice] = advise(finding)
    assert advice.sentence().startswith(
        "it is no number (nan or inf) from step 3,000 to the end of the log, 2 points: it diverged;"
    )


@pytest.mark.parametrize("count", [8, 300])
def test_a_curve_of_which_the_log_has_nan_beside_another_run_may_have_diverged_and_that_is_a_guess(count: int) -> None:
    advice = advise(seen(SETTLED[:count], nan_after=True))[0]
    assert advice.guess
    assert advice.sentence().startswith(
        f"after step {10 * (count - 1):,} the log has nan or inf for it, while another run goes on"
    )
    assert "if this run had not ended, it diverged" in advice.sentence()


def test_what_nobody_stated_is_called_a_guess_and_what_was_stated_is_not() -> None:
    guessed, stated = (advise(seen(math.log(10) + SETTLED, given))[0] for given in (Given(), Given(classes=10)))
    assert guessed.guess
    assert "a guess, say --classes N" in guessed.sentence()
    assert not stated.guess
    assert "chance for 10 classes (ln 10 = 2.303)" in stated.sentence()
    assert "guess" not in stated.sentence()


def test_a_loss_that_is_nearly_gone_is_probably_learned_and_that_is_a_guess() -> None:
    [advice] = advise(seen(0.02 + 3.0 * np.exp(-T / 40.0) + 1e-3 * NOISE))
    assert advice.guess
    assert advice.sentence().startswith("it rests at 0.020, little of what it was at first: probably")


def test_few_levels_are_taken_for_chance_by_accident() -> None:
    rng = np.random.default_rng(1)
    found = 0
    for level in rng.uniform(0.5, 11.0, 400).tolist():
        flat = curve(level + 0.01 * NOISE[:200])
        found += level_of(flat, Plateau(start=0.0, end=1990.0, level=float(np.median(flat.values))), Given()) is not None
    assert 0 < found <= 0.1 * 400


def test_a_loss_that_was_lower_before_is_not_at_chance_nor_one_that_came_from_far_above() -> None:
    level = math.log(10)
    resting = Plateau(start=5000.0, end=9990.0, level=level)
    flat = np.full(1000, level) + 0.01 * NOISE
    assert level_of(curve(flat), resting, Given()) is not None
    assert level_of(curve(np.where(T < 500, 1.0, flat)), resting, Given()) is None
    assert level_of(curve(np.where(T < 500, 9.0, flat)), resting, Given()) is None
    assert level_of(curve(flat, metric="gradient norm"), resting, Given()) is None


def test_a_wait_is_told_with_the_known_waits_and_the_command_that_looks_at_the_model() -> None:
    waits = known_waits()
    assert waits is not None
    sentence = advise(seen(2.0 + SETTLED))[1].sentence()
    assert waits.sentence() in sentence
    assert "`eureka diagnose MODULE:FUNCTION`" in sentence


def test_without_known_waits_there_is_no_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eureka.curves.advice.known_waits", lambda: summed([Look("tiles", "0.1", 100, 4, 4)]))
    assert "there is no basis" in advise(seen(2.0 + SETTLED))[1].sentence()


def test_the_shipped_table_is_what_the_command_makes_of_the_results() -> None:
    assert summed(read_looks(table())) == known_waits()


def test_looks_are_counted_by_hand() -> None:
    def run(name: str, leap: int | None) -> Waited:
        return Waited(name=name, task="tiles", lr="0.1", steps=800, leap=leap)

    counted = list(looks([run("a", 50), run("b", 150), run("c", 300), run("d", None)]))
    assert counted == [
        Look("tiles", "0.1", 100, 3, 1),
        Look("tiles", "0.1", 200, 2, 1),
        Look("tiles", "0.1", 400, 1, 0),
    ]
    told = summed([*counted, Look("tiles", "0.2", 100, 2, 2)])
    assert told is not None
    assert (told.waiting, told.left, told.lowest, told.highest) == (8, 4, 2 / 6, 2 / 6)


def test_a_slow_rise_of_train_before_validation_is_memorised_first() -> None:
    slow = 1.0 - 0.9 * np.exp(-T / 60.0) + 0.002 * NOISE
    late = 0.1 + 0.88 / (1.0 + np.exp(-(T - 700.0) / 20.0)) + 0.005 * NOISE
    named: dict[str, Any] = {"rising": True, "metric": "acc"}
    pair = Pair(seen(slow, **named), seen(late, **named, role="validation"))
    assert pair.sentence() == "validation rose at step 7,000; train rose before, but not abruptly: memorised first"
    assert [one.reason for one in advise_pair(pair)] == ["memorised"]
    idle = Pair(seen(0.1 + 0.002 * NOISE, **named), pair.validation)
    assert (idle.sentence() or "").endswith("train has no such rise")
    assert advise_pair(idle) == []


def test_the_floor_of_a_metric_that_rises_is_said_together_with_its_column() -> None:
    [rest, _] = advise(seen(0.8 - 0.6 * np.exp(-T / 30.0) + 0.01 * NOISE, rising=True, metric="top 5"))
    assert "(--column 'top 5' --floor VALUE says it)" in rest.next
    assert "(--floor VALUE says it)" in advise(seen(2.0 + SETTLED))[0].next


def test_a_curve_that_has_just_left_a_plateau_is_called_falling_only_if_it_falls() -> None:
    left = np.where(T < 600, 2.0, 0.5)[:700] + 0.02 * NOISE[:700]
    still, falling = (advise(seen(values))[0] for values in (left, left - 0.002 * np.maximum(T[:700] - 620.0, 0.0)))
    assert still.reason == falling.reason == "left"
    assert still.seen.endswith("; it is too soon to tell whether it rests")
    assert falling.seen.endswith(" and is still falling")


def test_what_rises_is_not_said_to_fall() -> None:
    up = np.where(T < 700, 0.1, 0.95 - 0.85 * np.exp(-np.maximum(T - 700.0, 0.0) / 15.0)) + 0.005 * NOISE
    [first, *_] = advise(seen(up, rising=True, metric="accuracy"))
    assert first.reason == "unknown_rate"
    assert first.seen.startswith("the rise at step ")


@pytest.mark.parametrize(("later", "told"), [(20, "train a little before"), (200, "memorised first")])
def test_validation_that_falls_soon_after_train_is_no_memorising(later: int, told: str) -> None:
    t = np.arange(1000.0)
    train, validation = (2.0 - 1.5 / (1.0 + np.exp(-(t - at) / 2.0)) + 0.01 * NOISE for at in (600.0, 600.0 + later))
    pair = Pair(seen(train), seen(validation, role="validation"))
    assert (pair.sentence() or "").endswith(f": {told}")
    assert bool(advise_pair(pair)) == (told == "memorised first")


def test_a_fall_of_train_that_is_explained_is_not_denied_beside_that_of_validation() -> None:
    rates = np.where(T < 595, 0.1, 0.01)
    pair = Pair(seen(STEP, lr=rates), seen(STEP + 0.01 * NOISE[::-1], role="validation"))
    assert (pair.sentence() or "").endswith("; train fell there too, which counts as a step of the learning rate")


def test_a_rate_that_ended_during_a_plateau_explains_only_what_came_after() -> None:
    whole, half = (advise(seen(2.0 + SETTLED, lr=np.where(end > T, 1e-3, 0.0)))[0] for end in (50, 450))
    assert whole.sentence().startswith("the learning rate is zero since step 500: this plateau says nothing about the model; ")
    assert half.sentence().startswith("the learning rate is zero since step 4,500: nothing can move from there on; ")
