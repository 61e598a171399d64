"""`eureka diagnose train.py`: whose options are whose, what is printed where, exit codes, and mistakes in one sentence."""

from __future__ import annotations

import json
import math
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from benchmarks.attach.run import SCRIPTS
from eureka.cli.budget import Budget, parse_budget
from eureka.cli.main import app
from eureka.cli.script import SCRIPT_ARGUMENTS, is_script
from eureka.cli.start import main
from eureka.errors import RequestError
from tests.capture.fork_server import eureka

# Whose options are whose


@pytest.mark.parametrize(
    ("words", "ours", "the_scripts"),
    [
        ("--at 20 train.py --lr 3", {"what": "train.py", "at": "20"}, "--lr 3"),
        ("train.py --at 20 --json -h", {"what": "train.py", "at": None, "json": False}, "--at 20 --json -h"),
        ("--json --race train.py", {"what": "train.py", "json": True, "race": True}, ""),
        ("--at=20 --then go train.py train.py", {"what": "train.py", "at": "20", "then": "go"}, "train.py"),
        ("--html page.py train.py a", {"what": "train.py", "html": Path("page.py")}, "a"),
        ("-- train.py --lr 3", {"what": "train.py"}, "--lr 3"),
        ("-m pkg.train --at 2", {"what": None, "module": "pkg.train", "at": None}, "--at 2"),
        ("--at 2 --module pkg.train x.py", {"what": None, "module": "pkg.train", "at": "2"}, "x.py"),
        ("--module=pkg.train x.py", {"what": None, "module": "pkg.train"}, "x.py"),
        ("-mpkg.train --lr 3", {"what": None, "module": "pkg.train"}, "--lr 3"),
        ("loss.csv --json", {"what": "loss.csv", "json": True}, ""),
        ("my_module:case --budget 10m", {"what": "my_module:case", "budget": "10m"}, ""),
    ],
)
def test_options_before_the_script_are_ours_and_all_behind_it_is_the_scripts(
    words: str, ours: dict[str, Any], the_scripts: str
) -> None:
    command: Any = get_command(app)
    context = command.commands["diagnose"].make_context("diagnose", words.split())
    assert {name: context.params[name] for name in ours} == ours
    assert context.meta[SCRIPT_ARGUMENTS] == the_scripts.split()


def test_a_file_that_python_would_run_by_its_first_line_is_a_script(tmp_path: Path) -> None:
    for name, first, expected in (
        ("train", "#!/usr/bin/env python3\n", True),
        ("train.sh", "#!/bin/sh\n", False),
        ("loss.csv", "step,loss\n", False),
        ("train.py", "", True),
    ):
        path = tmp_path / name
        path.write_text(first)
        assert is_script(str(path)) == expected
    assert is_script("not_there.py")
    assert not is_script("my_module:case")


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("90s", Budget(seconds=90)),
        ("10m", Budget(seconds=600)),
        ("1.5m", Budget(seconds=90)),
        ("2h", Budget(seconds=7200)),
        ("1d", Budget(seconds=86400)),
        ("400steps", Budget(steps=400)),
        ("1step", Budget(steps=1)),
        (None, Budget(seconds=7)),
    ],
)
def test_a_budget_is_a_time_or_a_number_of_steps(text: str | None, budget: Budget) -> None:
    assert parse_budget(text, Budget(seconds=7)) == budget
    assert budget.in_seconds(0.5) == min(budget.seconds, budget.steps / 2)
    assert math.inf in (budget.seconds, budget.steps)


@pytest.mark.parametrize("text", ["", "90", "soon", "0s", "-3s", "1e3s", "10 minutes", "10m5s", "m", "nans", "infs", "steps"])
def test_a_budget_without_a_number_and_unit_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="expected a time such as 90s, 45m or 2h, or a number of steps such as 400steps"):
        parse_budget(text, Budget())


# Mistakes, before anything is run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with scripts that must not be run; the command line's handler of SIGTERM is put back afterwards."""
    (tmp_path / "train.py").write_text("raise AssertionError('it was run')\n")
    (tmp_path / "wrong.py").write_text("import os\nfor x in range(3)\n    pass\n")
    (tmp_path / "bytes.py").write_bytes(b"x = '\xff'\n")
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "loss.csv").write_text("step,loss\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    handler = signal.getsignal(signal.SIGTERM)
    yield tmp_path
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("nothing.py", "nothing.py is not there; give the path of a training script."),
        ("folder.py", "folder.py is a folder; give the path of a training script."),
        ("wrong.py", "wrong.py:2: SyntaxError: expected ':'; nothing was run."),
        ("bytes.py", "bytes.py"),
        ("-m no.such.module", "there is no module no.such.module here; name it as in python -m no.such.module."),
        ("--at five train.py", "--at five: expected a step, as in --at 2000, or plateau."),
        ("--at 0 train.py", "--at 0: expected a step, as in --at 2000, or plateau."),
        ("--at 3 --after 10m train.py", "--at 3 and --after 10m: give one of the two."),
        ("--after 10 train.py", "--after 10: expected a time"),
        ("--after 40steps train.py", "--after 40steps: expected a time such as 90s or 10m; --at takes a step."),
        ("--budget 60 train.py", "--budget 60: expected a time such as 90s, 45m or 2h, or a number of steps such as 400steps."),
        ("--html no/page.html train.py", "cannot write no/page.html: there is no folder no"),
        ("--optimizer 0 train.py", "--optimizer"),
        ("--then wait train.py", "--then"),
        ("--at 3 --fork loss.csv", "--at and --fork: of a training script only, and loss.csv is none; leave it out."),
        ("", "give a training script, a log, a run folder, or a function as in my_module:my_case."),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_run(
    words: str, sentence: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["eureka", "diagnose", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    output, errors = capsys.readouterr()
    assert (stop.value.code, output) == (2, "")
    assert errors.startswith("eureka: ")
    assert sentence in errors
    assert errors.count("\n") == 1


# Scripts that are run


def test_json_is_one_document_that_names_the_argument_to_change_and_a_second_diagnosis_knows_the_first(tmp_path: Path) -> None:
    script = SCRIPTS / "plain.py"
    done = eureka("diagnose", "--json", "--at", 20, script, "--lr", "1e-8", folder=tmp_path)
    document = json.loads(done.output)
    assert done.code == 0
    assert {"of", "script", "findings", "checks", "notes", "remedies"} <= set(document)
    assert document["of"] == "plain.py --lr 1e-8"
    assert {"loss_exact": True, "step_exact": True, "taped_steps": 32, "step": 52}.items() <= document["script"].items()
    assert document["script"]["optimizer_line"] == "plain.py:40"
    first = document["findings"][0]
    assert first["cause"] == "lr_too_small"
    assert first["code"].startswith("--lr 1e-8 → --lr 1e-")
    assert "epoch 0 step 20 loss" in done.errors  # the script's own prints
    assert done.said[-1] == "the script is ended here, at step 52; --then go lets it go on."

    again = eureka("diagnose", "--at", 20, script, "--lr", "1e-3", "--steps", 90, folder=tmp_path)
    assert again.code == 0
    assert "epoch 0 step 20 loss" in again.output
    assert "lr_too_small" in again.output.partition("healthy")[0]  # what it was


SECRET = "abc123secret"
TAKES_A_TOKEN = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--hf_token")
parser.add_argument("--lr", type=float)
args = parser.parse_args()
assert args.hf_token == "abc123secret"
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
try:
    for step in range(60):
        x = torch.randn(16, 4)
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
finally:
    print("cleaned up after", step + 1, "steps")
"""


def test_a_token_is_in_no_output_and_the_script_cleans_up_when_it_is_ended(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TAKES_A_TOKEN)
    options = ["--json", "--at", 3, "--html", "page.html", "--budget", "40steps"]
    done = eureka("diagnose", *options, "train.py", "--hf_token", SECRET, "--lr", 0.1, folder=tmp_path)
    assert done.code == 0, done.errors
    assert json.loads(done.output)["of"] == "train.py --hf_token *** --lr 0.1"
    assert "--hf_token ***" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "cleaned up after 35 steps" in done.errors
    kept = [done.output, done.errors, *(one.read_text(encoding="utf-8") for one in tmp_path.rglob("*") if one.is_file())]
    assert [text for text in kept if SECRET in text] == [TAKES_A_TOKEN]


def test_a_script_that_fails_before_its_first_step_gets_its_own_traceback_and_one_sentence(tmp_path: Path) -> None:
    text = "def load():\n    raise ValueError('no data')\n\nload()\n"
    (tmp_path / "train.py").write_text(text)
    done = eureka("diagnose", "train.py", folder=tmp_path)
    alone = f'''Traceback (most recent call last):
  File "{tmp_path}/train.py", line 4, in <module>
    load()
  File "{tmp_path}/train.py", line 2, in load
    raise ValueError('no data')
ValueError: no data
'''
    assert (done.code, done.output) == (1, "")
    assert alone in done.errors
    after = done.errors.partition(alone)[2]
    assert after.startswith("eureka: the script ended with exit code 1, and no optimiser of torch has made a step")
    assert after.count("\n") == 1


@pytest.mark.parametrize(("ending", "code"), [("", 1), ("raise SystemExit(3)", 3)])
def test_a_script_that_ends_before_it_is_examined_says_so(tmp_path: Path, ending: str, code: int) -> None:
    (tmp_path / "train.py").write_text(f"""
import torch

def main():
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(4, 2)).square().mean().backward()
        optimizer.step()

main()
print("trained")
{ending}
""")
    done = eureka("diagnose", "--at", 20, "train.py", folder=tmp_path)
    assert (done.code, done.output) == (code, "trained\n")
    assert " after 3 steps, and was to be examined at step 20. Nothing was examined: " in done.said[-1]
    assert ("with exit code 3" in done.said[-1]) == (code == 3)
