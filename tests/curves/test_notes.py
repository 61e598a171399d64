"""What is said beside the moments of a curve."""

from __future__ import annotations

import numpy as np
import pytest

from eureka.curves.finding import Finding, examine
from eureka.curves.grid import Array
from eureka.curves.readers.curve import Curve
from tests.curves.test_detector import drop, epoch_stairs, step_decay


def finding(values: Array, lr: Array | None = None, epochs: Array | None = None, *, rising: bool = False) -> Finding:
    steps = np.arange(float(len(values)))
    return examine(
        Curve(
            file="log.csv", metric="loss", step_name="step", steps=steps, values=values, lr=lr, epochs=epochs,
            points=len(values), metrics=("loss",), rising=rising,
        )
    )  # fmt: skip


def test_a_verdict_says_that_no_learning_rate_is_known() -> None:
    assert finding(drop()).verdict().endswith("; the learning rate is not known")
    assert "rate" not in finding(drop(), lr=np.ones(3000)).verdict()
    assert "rate" not in finding(np.full(500, 2.0)).verdict()


def test_a_verdict_says_that_a_step_of_the_rate_would_look_like_this() -> None:
    found = finding(step_decay())
    assert found.verdict().endswith("; the learning rate is not known, and a step of it would look like this")
    [note] = found.notes
    assert note.startswith("looks like a step of the learning rate, which is not known: at ")


def test_a_forward_filled_log_is_said_to_be_one() -> None:
    found = finding(np.repeat(drop()[::20], 20))
    assert found.notes == ["each value is repeated 20 times, as in a forward-filled log: judged where it changes"]


def test_inferred_epochs_are_named_and_given_ones_are_not() -> None:
    values, epochs = epoch_stairs(4)
    assert [note.split(":")[0] for note in finding(values).notes] == [
        "falls at equal distances, as epochs or steps of the learning rate have"
    ]
    assert finding(values, epochs=epochs).notes == []


def test_the_plateaus_of_a_rising_metric_are_told_in_its_own_values() -> None:
    first, last = finding(3.0 - drop(), rising=True).plateaus
    assert [first.level, last.level] == pytest.approx([1.0, 2.5], abs=0.05)
