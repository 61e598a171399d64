"""The state of a run in words, from its files."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path

import pytest

from eureka.config import RunConfig
from eureka.runs import Level, Metrics, Outcome, RunFolder, Status, StoredConfig, TaskRecord, read_run
from eureka.study.status import RunStatus, run_status

LEVELS = [Level("the last step", 0.8, 0.55), Level("all steps", 0.1, 1.0)]
FALL = [(2.3 - 0.3 * i, 0.1 + 0.09 * i) for i in range(5)]
PLATEAU = [*FALL, *[(0.8, 0.55)] * 20]
DESCENT = [(0.8 + 3.0 / (4.0 + i), 0.55) for i in range(25)]


def status(
    folder: RunFolder, config: RunConfig, points: list[tuple[float, float]], ended: Status | None = None, *, at_work: bool = True
) -> RunStatus:
    """Of a run that logged these losses and accuracies, every fifth step."""
    folder.create()
    folder.write_config(StoredConfig(config.to_json()))
    folder.write_task(TaskRecord(LEVELS))
    lines = [Metrics(5 * i, loss, accuracy, loss, accuracy, 1e-3) for i, (loss, accuracy) in enumerate(points)]
    folder.metrics_file.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))
    if ended:
        eureka = 125 if ended == "stopped_early" else None
        folder.write_result(Outcome(ended, 20, 1.0, 320, eureka, eureka, (), None, None))
    run = read_run(folder)
    assert run is not None
    with folder.held() if at_work else nullcontext():
        return run_status(run)


@pytest.mark.parametrize(
    ("points", "ended", "phase", "text"),
    [
        ([], None, "starting", "starting"),
        ([], "diverged", "diverged", "diverged at step 20"),
        ([(2.3, 0.1), (1.9, 0.3)], None, "learning", "learning"),
        (PLATEAU[:10], None, "learning", "learning"),
        (DESCENT, None, "learning", "learning"),
        (PLATEAU, None, "plateau", "at the shortcut level (accuracy 0.55, theory 0.550)"),
        ([(loss, 0.3) for loss, _ in PLATEAU], None, "plateau", "on a plateau at loss 0.800"),
        (PLATEAU, "finished", "ended", "no Eureka-moment in 20 steps"),
        (PLATEAU, "diverged", "diverged", "diverged at step 20"),
        ([*PLATEAU, (0.3, 0.9)], None, "eureka", "Eureka at step 125"),
        ([*PLATEAU, (0.3, 0.9)], "stopped_early", "ended", "Eureka at step 125"),
    ],
)
def test_the_phase_and_its_words(
    tiny: RunConfig, tmp_path: Path, points: list[tuple[float, float]], ended: Status | None, phase: str, text: str
) -> None:
    found = status(RunFolder(tmp_path / "run"), tiny.but({"training.steps": 200}), points, ended)
    assert (found.phase, found.text, found.ended) == (phase, text, ended is not None)


def test_a_run_that_nobody_is_at_work_on_is_not_shown_as_live(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"training.steps": 200})
    begun = status(RunFolder(tmp_path / "begun"), config, PLATEAU, at_work=False)
    assert (begun.phase, begun.text, begun.live, begun.ended) == ("interrupted", "interrupted at step 120", False, False)
    assert status(RunFolder(tmp_path / "new"), config, [], at_work=False).phase == "waiting"
