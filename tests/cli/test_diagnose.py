"""`eureka diagnose`: what it takes, what it prints for people and for programs, and what it says about mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from eureka.cli.diagnose import diagnose
from eureka.config import RunConfig
from eureka.errors import RequestError, UnknownNameError
from eureka.experiment import run as train

app = typer.Typer()
app.command()(diagnose)

CASES = """
import torch
from torch import nn

def stuck():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = [(x := torch.randn(16, 4), x[:, :3].argmax(dim=1)) for _ in range(24)]
    return {
        "model": model,
        "batches": batches,
        "loss": lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        "optimizer": torch.optim.Adam(model.parameters(), lr=0.0),
        "log": [1.1] * 40,
    }

class Held:
    def __init__(self):
        vars(self).update(stuck())

def misspelt():
    return stuck() | {"optimiser": None}

def fails():
    raise KeyError("no data")

def fails_in_the_loss():
    return stuck() | {"loss": lambda model, batch: model(batch[1]).mean()}

def nothing():
    return None

value = 3
"""


def say(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)


@pytest.fixture
def cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the folder of the command, with a name that no other test has."""
    name = f"cases_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(CASES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def test_a_function_of_the_users_is_diagnosed(cases: str, tmp_path: Path) -> None:
    text = say(f"{cases}:stuck", "--html", tmp_path / "page.html").stdout
    assert text.startswith("lr_too_small (98% sure)")
    assert text.rstrip().endswith("page.html")
    assert "lr_too_small" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_object_with_the_same_names_is_taken_and_json_is_one_document(cases: str) -> None:
    document = json.loads(say(f"{cases}:Held", "--json", "--budget", "60s").stdout)
    assert set(document) == {"of", "findings", "checks", "notes", "remedies", "seconds", "step_seconds", "attention"}
    assert document["of"] == f"{cases}:Held"
    assert document["findings"][0]["cause"] == "lr_too_small"
    assert set(document["findings"][0]) == {"cause", "sure", "explains", "evidence", "advice", "code", "kind", "numbers"}
    assert all(set(check) == {"name", "seconds", "skipped"} for check in document["checks"])


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        ("misspelt", UnknownNameError, r"'optimiser'; did you mean 'optimizer'\?"),
        ("fails", RequestError, r"fails\(\) failed in line \d+ of cases_\d+.py with KeyError: 'no data'$"),
        ("fails_in_the_loss", RequestError, r"a training step fails in line \d+ of cases_\d+.py with RuntimeError: "),
        ("nothing", RequestError, r"nothing\(\) returns a NoneType; it must return a dict with model, batches, loss"),
        ("value", RequestError, "value is a int; name a function that returns a dict"),
        ("stukc", UnknownNameError, r"'stukc'; did you mean 'stuck'\?"),
    ],
)
def test_a_mistake_in_the_users_function_is_one_sentence(cases: str, function: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        say(f"{cases}:{function}")


def test_a_module_that_is_not_there_is_named(cases: str) -> None:
    with pytest.raises(UnknownNameError, match=f"'{cases}x'; did you mean '{cases}'"):
        say(f"{cases}x:stuck")


def test_a_run_goes_on_from_its_checkpoint(tiny: RunConfig, tmp_path: Path) -> None:
    train(tiny, tmp_path / "runs" / "one")
    folder = tmp_path / "runs" / "one"
    kept = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = json.loads(say(folder, "--json", "--budget", "1steps").stdout)
    assert found["notes"] == ["one at step 24."]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept
    first = sorted((folder / "checkpoints").iterdir())[0]
    assert json.loads(say(first, "--json", "--budget", "1steps").stdout)["notes"] == [f"one at step {int(first.stem[5:])}."]
    with pytest.raises(RequestError, match=r"runs holds 1 run; name one, as in .*one\.$"):
        say(tmp_path / "runs")


def test_what_is_handed_over_of_a_run_is_what_its_loop_goes_on_with(make_tiny: Any, tmp_path: Path) -> None:
    """Two more steps from the checkpoint before the last are bit for bit those of the run."""
    import torch

    from eureka.runs import RunFolder
    from eureka.snapshots import hand_over_run, trained_snapshot

    config = make_tiny(qk_lr_scale=0.5, steps=16, checkpoint_every=14)
    train(config, tmp_path)
    folder = RunFolder(tmp_path)
    before, last = sorted((tmp_path / "checkpoints").iterdir())
    given = hand_over_run(folder, before)
    assert given.step is not None
    assert given.optimizer is not None
    for _, batch in zip(range(2), given.batches, strict=False):
        given.step(given.model, given.optimizer, batch)
    end = trained_snapshot(folder, last).model.state_dict()
    assert all(torch.equal(value, end[name]) for name, value in given.model.state_dict().items())


def test_a_log_tells_what_it_can_and_what_it_cannot(tmp_path: Path) -> None:
    log = tmp_path / "loss.csv"
    log.write_text("step,loss\n" + "".join(f"{i},{2.0 + 0.001 * (i % 3)}\n" for i in range(300)))
    text = say(log, "--html", tmp_path / "page.html").stdout
    assert "it is on a plateau at 2" in text
    assert "A log tells whether a run is stuck, not why" in text
    assert "eureka diagnose train_setup:stuck" in text
    assert (tmp_path / "page.html").exists()
    document = json.loads(say(log, "--json").stdout)
    assert set(document) == {"of", "files", "together", "unknown", "hand_over"}


def test_a_log_needs_no_torch(tmp_path: Path) -> None:
    log = tmp_path / "loss.csv"
    log.write_text("step,loss\n" + "".join(f"{i},2.0\n" for i in range(300)))
    code = "import sys\nfrom eureka.cli.main import run_command\nassert not run_command()\nprint('torch' in sys.modules)"
    command = [sys.executable, "-c", code, "diagnose", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.rstrip().endswith("False")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.csv"], "nothing.csv is not there; give a log, a run folder, or a function as in my_module:my_case."),
        (["a:b", "--html", "no/page.html"], "cannot write no/page.html: there is no folder no"),
    ],
)
def test_what_is_not_there_is_refused(arguments: list[str], says: str, cases: str) -> None:
    with pytest.raises(RequestError, match=says.replace("(", r"\(")):
        say(*arguments)
