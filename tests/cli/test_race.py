"""`eureka race` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eureka.cli.main import app
from eureka.errors import RequestError

CASE = """
import torch
from torch import nn

def loss(model, batch):
    return (model(batch) - batch.sum(1, keepdim=True)).square().mean()

def case():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    batches = [torch.randn(8, 4) for _ in range(4)]
    return {"model": model, "batches": batches, "loss": loss, "optimizer": torch.optim.SGD(model.parameters(), lr=1e-5)}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "raced_case.py").write_text(CASE)
    monkeypatch.setenv("EUREKA_FOLDER", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_function_is_raced_and_told_as_json() -> None:
    words = ["race", "raced_case:case", "--remedies", "rate_x10,norm_softmax", "--steps", "4"]
    told = CliRunner().invoke(app, [*words, "--json"], catch_exceptions=False)
    document = json.loads(told.stdout)
    assert [verdict["standing"] for verdict in document["verdicts"]] == ["level", "skipped"]
    assert document["steps"] == 8
    shown = CliRunner().invoke(app, words, catch_exceptions=False).stdout
    assert "The race took 8 training steps over all forks" in shown


def test_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    log = tmp_path / "loss.csv"
    log.touch()
    for words, sentence in (
        (["raced_case:cas"], "unknown function in "),
        (["raced_case:case", "--at", "3"], "--at: of a run folder only, and raced_case:case names a function; leave it out."),
        (["raced_case:case", "--out", "forks", "--workers", "2"], "--out and --workers: of a run folder only"),
        (["raced_case:case", "--budget", "60"], "--budget 60: expected a time such as 90s, 45m or 2h, or a number of steps"),
        (["raced_case:case", "--on", "ray"], "--on: of a run folder only"),
        ([str(log)], "loss.csv is a file: a race trains on, from a run folder or from what MODULE:FUNCTION returns."),
        (["--workers", "2", __file__], "--workers: of a run folder only, and a script was given; leave it out."),
        ([str(tmp_path), "--at", "plateau"], "--at plateau: of a run folder, expected a step, as in --at 2000."),
        ([], "give a training script, a run folder, or a function as in my_module:my_case."),
        (["nowhere"], "nowhere is not there; give a folder that `eureka run` has written, or module:function."),
    ):
        with pytest.raises(RequestError, match=sentence):
            CliRunner().invoke(app, ["race", *words], catch_exceptions=False, standalone_mode=False)


def test_of_a_run_folder_remedies_that_need_a_model_are_left_out_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--set", "training.steps=4", "--set", "training.log_every=2", "--set", "training.validation_samples=32"]
    small += ["--set", "training.batch_size=8", "--set", "training.warmup=1"]
    CliRunner().invoke(app, ["run", "tiles", *small, "--out", "runs"], catch_exceptions=False)
    words = ["race", "runs", "--remedies", "rate_x3,start_over", "--steps", "2", "--workers", "1", "--out", "forks"]
    told = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "start_over is left out: it changes a model in memory; `eureka race MODULE:FUNCTION` has it." in told.stderr
    assert "rate_x3" in told.stdout
    for more, sentence in (
        (["--remedies", "start_over"], "unknown remedy of a run folder"),
        (["--seed", "1"], "--seed 1: of a function"),
    ):
        with pytest.raises(RequestError, match=sentence):
            CliRunner().invoke(app, ["race", "runs", *more], catch_exceptions=False, standalone_mode=False)
