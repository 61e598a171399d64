"""A command alone says what it can do; a study is found by its file; what a budget left out is named."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eureka.cli.compare import compare
from eureka.cli.main import app
from eureka.cli.race import race
from eureka.cli.run_study import _not_finished
from eureka.config import RunConfig
from eureka.models.start import STARTS
from eureka.recipes import RECIPES, recipe
from eureka.study.plan import Study


def eureka(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "eureka", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(
    ("words", "verbs"), [([], ["compare", "watch", "detect"]), (["data"], ["list", "fetch", "path"]), (["bench"], ["attention"])]
)
def test_alone_it_prints_help_and_exits_with_0(words: list[str], verbs: list[str], tmp_path: Path) -> None:
    done = eureka(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout
    assert all(verb in done.stdout for verb in verbs)


def test_the_status_of_a_study_is_found_by_its_file(tmp_path: Path, tiny: RunConfig) -> None:
    (tmp_path / "mine.yaml").write_text("recipe: tiles\n")
    done = eureka("study", "status", "mine.yaml", cwd=tmp_path)
    assert done.returncode == 2
    assert "mine.yaml has no runs in runs/mine yet; `eureka study mine.yaml` begins them" in done.stderr
    Study.over(tiny, {"training.seed": [0, 1]}, tmp_path / "runs" / "mine").prepare()
    done = eureka("study", "status", "mine.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "0 of 2 runs ended.")
    moved = (tmp_path / "runs" / "mine").rename(tmp_path / "elsewhere")
    assert eureka("study", "status", "mine.yaml", "--out", moved.name, cwd=tmp_path).returncode == 0


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    done = eureka("study", "status", "none.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (2, "eureka: cannot read none.yaml: there is no such file.\n")


def test_what_a_budget_left_out_is_named(tmp_path: Path, tiny: RunConfig) -> None:
    first, second, *_ = folders = Study.over(tiny, {"training.seed": range(10)}, tmp_path).prepare()
    first.metrics_file.write_text(
        '{"step": 1, "train_loss": 1, "train_accuracy": 1, "validation_loss": 1, "validation_accuracy": 1, "lr": 1}\n'
    )
    told = _not_finished(folders, "5s")
    assert told.startswith(
        "The budget of 5s has ended. 1 run of 10 interrupted and 9 runs of 10 not started (norm_softmax, lr 0.001,"
    )
    assert told.endswith("seed 6; 3 more); the same command goes on.\n")
    assert _not_finished([second], None) == "1 run of 1 not started (norm_softmax, lr 0.001, seed 1); the same command goes on.\n"


def test_a_budget_that_is_too_small_says_what_was_not_started(tmp_path: Path) -> None:
    done = eureka("compare", "tiles", "--seeds", "1", "--workers", "1", "--budget", "0.01s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("The budget of 0.01s has ended. 2 runs of 2 not started (softmax, lr 0.0003, seed 0; norm_softmax,")


def test_the_help_of_start_names_every_start_and_the_default() -> None:
    told = inspect.signature(compare, eval_str=True).parameters["start"].annotation.__metadata__[0].help
    assert ",".join(STARTS) in told
    starts = {recipe(name).to_json()["model"].get("start", "paper") for name in RECIPES}
    assert [f"(default: {start})" in told for start in starts] == [True]


def test_the_help_of_race_says_which_options_are_for_what(tmp_path: Path) -> None:
    told = " ".join(str(race.__doc__).split())
    found = re.search(r"(--out.*) are for a run folder only; (--after.*) for a script only", told)
    assert found is not None
    of_runs, of_scripts = (re.findall(r"--\w+", words) for words in found.groups())
    values = {"--on": "ray", "--then": "go"}
    for options, what, why in (
        (of_runs, "module:function", "of a run folder only"),
        (of_runs, str(tmp_path / "train.py"), "of a run folder only"),
        (of_scripts, "module:function", "of a training script only"),
        (of_scripts, str(tmp_path), "of a training script only"),
    ):
        for option in options:
            done = CliRunner().invoke(app, ["race", option, values.get(option, "1"), what])
            assert f"{option}: {why}" in str(done.exception)
    others = {"context", "what", "module", "remedies", "steps", "at", "seed", "budget", "json"}
    assert {*inspect.signature(race).parameters} == others | {option.removeprefix("--") for option in of_runs + of_scripts}
