"""`eureka compare --until-sure`, from the command line: most runs are planted, a few are real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eureka.cli.compare import compare
from eureka.recipes import recipe
from eureka.runs import Outcome
from eureka.study.plan import Study
from eureka.study.sequential import SEEDS

TINY = {
    "training.steps": 40,
    "training.warmup": 5,
    "training.log_every": 10,
    "training.batch_size": 16,
    "training.validation_samples": 64,
    "model.dim": 16,
}
SETS = [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


def plant(folder: Path, seeds: int, leaps: int) -> None:
    """Runs that have ended: none leaps with softmax, the first `leaps` with norm_softmax."""
    grid = {"training.seed": range(seeds), "training.lr": [1e-3], "attention.name": ["softmax", "norm_softmax"]}
    for run in Study.over(recipe("tiles").but(TINY), grid, folder / "runs" / "tiles", "tiles").prepare():
        config = run.config()
        assert config is not None
        step = 20 if config.fix == "norm_softmax" and config.seed < leaps else None
        run.write_result(Outcome("finished", 40, 60.0, 640, step, step, (), 0.5, 0.9))


def eureka(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eureka", "compare", "tiles", "--lr", "1e-3", *SETS, *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=280)


def run_folders(folder: Path) -> list[str]:
    return sorted(path.parent.name for path in folder.rglob("config.json"))


def test_too_few_runs_name_the_command_that_decides_and_how_long_it_takes(tmp_path: Path) -> None:
    plant(tmp_path, 3, 3)
    done = eureka(tmp_path, "--seeds", "3", "--workers", "2")
    assert "not enough runs to tell (3 against 3); 2.0× sooner so far\nTo decide it" in done.stdout
    # three more seeds of two arms, a minute each, two at a time; workers take four seconds to begin, and a run a third of one
    assert "(at least 6 more runs, up to 6 seeds, about 4 min on 2 cores):\n  eureka compare tiles --lr 1e-3 --set" in done.stdout
    assert "--workers 2 --until-sure\n" in done.stdout
    advice = json.loads((tmp_path / "runs/tiles/summary.json").read_text())["to_decide"]
    assert (advice["seeds"], advice["runs"], advice["seconds"]) == (6, 6, pytest.approx(4 + 3 * 60.3))


def test_enough_runs_name_none(tmp_path: Path) -> None:
    plant(tmp_path, 6, 6)
    done = eureka(tmp_path, "--seeds", "6", "--json")
    assert json.loads(done.stdout)["to_decide"] is None


def test_what_is_decided_by_the_runs_that_are_there_trains_nothing(tmp_path: Path) -> None:
    plant(tmp_path, 8, 8)
    done = eureka(tmp_path, "--until-sure", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert "decided after 6 seeds" in document["comparisons"][0]["verdict"]
    [decision] = document["until_sure"]["decisions"]
    assert (decision["outcome"], decision["rule"], decision["seeds"]) == ("sooner", "p", 6)
    assert document["until_sure"]["looks"][0] == {"seeds": 6, "share": 0.125}
    assert [row["seeds"] for row in document["rows"]] == [list(range(6))] * 2
    assert document == json.loads((tmp_path / "runs/tiles/summary.json").read_text())
    assert not list(tmp_path.rglob("metrics.jsonl"))
    assert len(run_folders(tmp_path)) == 16


def test_a_real_round_then_a_budget_that_ends_and_the_same_command_again(tmp_path: Path) -> None:
    plant(tmp_path, 5, 5)
    first = eureka(tmp_path, "--until-sure", "--seeds", "6")
    assert first.returncode == 0, first.stderr
    assert "Round 1 of at most 1: norm_softmax is undecided. The look after 6 seeds needs 2 more runs, about " in first.stderr
    assert len(list(tmp_path.rglob("metrics.jsonl"))) == 2  # seed 5 of both arms
    # five leaps of six against none of six: p = 2 · 6 / 792, eight times as much for the look
    assert "p = 0.12, n = 6; the last look was after 6 seeds" in first.stdout

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("metrics.jsonl")}
    again = eureka(tmp_path, "--until-sure", "--seeds", "6")
    assert again.stdout == first.stdout
    assert "Round" not in again.stderr

    short = eureka(tmp_path, "--until-sure", "--budget", "0.1s", "--json")
    assert short.returncode == 0, short.stderr
    assert "The budget has ended; norm_softmax is undecided. The look after 9 seeds needs 6 more runs" in short.stderr
    assert short.stderr.endswith("The same command goes on.\n")
    document = json.loads(short.stdout)
    assert document["until_sure"]["next_look"] == 9
    assert document["until_sure"]["decisions"][0]["outcome"] is None
    assert document["comparisons"][0]["verdict"].endswith("the next look is after 9 seeds")
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_run_of_another_process_is_waited_for(tmp_path: Path) -> None:
    plant(tmp_path, 5, 5)
    base = recipe("tiles").but(TINY | {"training.seed": 5, "training.lr": 1e-3})
    [held] = Study.over(base, {"attention.name": ["softmax"]}, tmp_path / "runs" / "tiles", "tiles").prepare()
    command = [sys.executable, "-m", "eureka", "compare", "tiles", "--lr", "1e-3", *SETS, "--until-sure", "--seeds", "6"]
    with held.held():
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        told = next((line for line in process.stderr if line.startswith(("Another", "eureka: "))), "")
        assert told == "Another process is at work on 1 run of this round; waiting for it.\n"
        held.write_result(Outcome("finished", 40, 60.0, 640, None, None, (), 0.5, 0.9))
    shown, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert "p = 0.12, n = 6; the last look was after 6 seeds" in shown


def test_the_help_names_the_looks_that_there_are() -> None:
    assert f"looks after {', '.join(map(str, SEEDS[:-1]))} and {SEEDS[-1]} seeds" in str(compare.__doc__)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--fix", "norm_softmax"], "--until-sure: there is nothing to decide; name softmax and what to compare with it."),
        (["--seeds", "3"], "--seeds 3: --until-sure looks after 6, 9, 14, 20 and 30 seeds"),
    ],
)
def test_what_cannot_be_decided_is_one_sentence(tmp_path: Path, options: list[str], sentence: str) -> None:
    done = eureka(tmp_path, "--until-sure", *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert run_folders(tmp_path) == []
