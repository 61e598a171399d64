"""A run that diverges ends, says so, and is not done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eureka.attention.registry import FIXES
from eureka.config import RunConfig
from eureka.experiment import run
from eureka.runs import RunFolder

FAST = {"training.warmup": 0, "training.steps": 12, "training.log_every": 1, "training.probe_every": 1}


def refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize("lr", [1e2, 1e8])
@pytest.mark.parametrize("fix", FIXES.names())
def test_every_fix_ends_at_a_rate_at_which_it_diverges(tiny: RunConfig, tmp_path: Path, fix: str, lr: float) -> None:
    config = tiny.but({**FAST, "attention.name": fix, "training.lr": lr})
    first = run(config, tmp_path)
    again = run(config, tmp_path)
    assert first.outcome == again.outcome
    for line in [*(tmp_path / "metrics.jsonl").read_text().splitlines(), (tmp_path / "result.json").read_text()]:
        json.loads(line, parse_constant=refuse)


def test_a_validation_that_is_no_number_ends_the_run_though_the_training_loss_is_finite(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({**FAST, "training.lr": 1e8})
    outcome = run(config, tmp_path).outcome
    last = RunFolder(tmp_path).metrics()[-1]
    assert outcome.status == "diverged"
    assert last.step == outcome.steps == 1
    assert abs(last.train_loss) < 1e3  # of the step before the weights were thrown
    assert outcome.final_loss is None
