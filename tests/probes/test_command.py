from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from typer.testing import CliRunner

from eureka.cli.probe import probe
from eureka.config import RunConfig, run_config
from eureka.errors import RequestError, WorkError
from eureka.experiment import build, run
from eureka.formats import percent
from eureka.runs import RunFolder
from eureka.snapshots import snapshot_before_leap

app = typer.Typer()
app.command()(probe)


def called(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


@pytest.fixture
def folder(tiny: RunConfig, tmp_path: Path) -> Path:
    run(tiny, tmp_path / "run")
    return tmp_path / "run"


def test_the_table_has_a_row_for_every_layer_and_head(folder: Path) -> None:
    lines = called(str(folder)).splitlines()
    assert lines[0].startswith("run at step 24")
    assert sum(line.strip().startswith("blocks.0.attention ") for line in lines) == 2
    assert all(word in lines[2] for word in ("entropy / log n", "spread of q·k", "|∂W_Q|", "q, k to v"))


@pytest.fixture
def copier(tiny: RunConfig, tmp_path: Path) -> Path:
    """A run on repeated tokens."""
    task = {"name": "induction", "vocabulary": 12, "length": 13, "shortest_lag": 3, "longest_lag": 5}
    model = {"name": "decoder", "dim": 16, "depth": 2, "heads": 1}
    run(run_config(task=task, model=model, attention={"name": "softmax"}, training=tiny.training), tmp_path / "copier")
    return tmp_path / "copier"


def test_induction_heads_are_scored_where_the_task_repeats_tokens(copier: Path, folder: Path) -> None:
    told = called(str(copier))
    assert "induction-head scores" in told
    assert all(word in told for word in ("prefix matching", "if even", "previous token", "copying"))
    assert "What each head learned, and when" in (copier / "report.html").read_text(encoding="utf-8")
    assert "induction-head scores" not in called(str(folder))
    assert "What each head learned" not in (folder / "report.html").read_text(encoding="utf-8")


def test_random_tokens_said_twice_can_be_shown_instead(copier: Path, folder: Path) -> None:
    own, repeated = (json.loads(called(str(copier), "--json", *more))["sites"][1]["values"] for more in ((), ("--repeated",)))
    assert own["prefix_chance"] != repeated["prefix_chance"]
    even = [(1 + (i == 12)) / (i + 1) for i in range(6, 13)]  # six different tokens, said twice, and then the first again
    assert repeated["prefix_chance"] == pytest.approx([sum(even) / 7])
    assert own["copying"] == repeated["copying"]
    assert own["entropy"] == repeated["entropy"]
    with pytest.raises(RequestError, match="--repeated needs a task whose inputs are tokens"):
        called(str(folder), "--repeated")


def test_the_position_share_is_a_sentence_and_the_document_has_its_numbers(folder: Path) -> None:
    [line] = [line for line in called(str(folder)).splitlines() if "positions are" in line]
    found = json.loads(called(str(folder), "--json"))["position_share"]
    assert (found["site"], found["parameters"], found["note"]) == ("blocks.0.attention", ["positions"], None)
    assert line.startswith(f"blocks.0.attention: positions are {percent(found['of_input'])} of the input")
    assert f"{percent(found['of_logits'])} of the variance in a row of logits" in line
    assert found["ratio"] == pytest.approx(found["position"] / found["content"])
    assert found["of_logits"] == pytest.approx(sum(found["logits"]) / 2)


def test_the_document_holds_the_numbers_of_the_last_checkpoint(folder: Path, tiny: RunConfig) -> None:
    found = json.loads(called(str(folder), "--json"))
    assert found["step"] == 24
    values = found["sites"][0]["values"]
    assert len(values["entropy"]) == 2
    state = torch.load(folder / "checkpoints" / "step-000000024.pt", weights_only=True)["model"]
    task, built = build(tiny)
    model: Any = built
    model.load_state_dict(state)
    batch = task.sample(256, torch.Generator().manual_seed(20_250_101), "validation")
    task.loss(model(batch.inputs), batch).backward()  # type: ignore[no-untyped-call]
    gradient = model.blocks[0].attention.qkv.weight.grad.abs().unflatten(0, (3, 2, -1)).mean(dim=(2, 3))
    for row, name in zip(gradient.tolist(), ("grad_q", "grad_k", "grad_v"), strict=True):
        assert values[name] == pytest.approx(row, rel=1e-4)


def test_an_earlier_checkpoint_and_the_beginning_can_be_looked_at(folder: Path) -> None:
    first = sorted((folder / "checkpoints").glob("*.pt"))[0]
    steps = [json.loads(called(*arguments, "--json"))["step"] for arguments in ((str(first),), (str(folder), "--initial"))]
    assert steps == [21, 0]


def test_answers_that_can_be_read_off_are_listed_and_how_long_that_takes_is_told_on_standard_error(folder: Path) -> None:
    result = CliRunner().invoke(app, [str(folder), "--linear", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)["linear"]
    assert re.fullmatch(r"\d+ linear probes: about \d+ (s|min) more\n", result.stderr)
    assert {each["answer"] for each in found} >= {"indicator_1", "target_2", "label"}


def test_what_was_measured_is_kept_and_put_on_the_page_of_the_run(folder: Path) -> None:
    found = json.loads(called(str(folder), "--json"))
    kept = RunFolder(folder).probes()
    assert kept is not None
    share = {key: value for key, value in found["position_share"].items() if key not in ("ratio", "of_input", "of_logits")}
    assert kept.to_json()["record"] == {"step": 24, "sites": found["sites"], "position_share": share}
    assert found["report"] == str(folder / "report.html")
    assert "Inside attention" in (folder / "report.html").read_text(encoding="utf-8")


def test_the_page_can_be_elsewhere(folder: Path, tmp_path: Path) -> None:
    assert called(str(folder), "-o", str(tmp_path / "page.html")).endswith(f"The pictures are in {tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").is_file()
    assert not (folder / "report.html").exists()
    with pytest.raises(RequestError, match="there is no folder"):
        called(str(folder), "-o", str(tmp_path / "nowhere" / "page.html"))


def test_a_checkpoint_and_the_beginning_are_only_shown(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    for arguments in ((str(folder), "--initial"), (str(folder / "checkpoints" / "step-000000021.pt"),)):
        assert "report" not in json.loads(called(*arguments, "--json"))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(("onset", "step"), [(None, 0), (5, 0), (22, 21), (24, 24)])
def test_before_is_the_newest_checkpoint_that_is_not_later_than_the_onset(
    folder: Path, tiny: RunConfig, onset: int | None, step: int
) -> None:
    run = RunFolder(folder)
    result = run.result()
    assert result is not None
    run.write_result(replace(result, onset_step=onset))
    snapshot = snapshot_before_leap(run)
    assert snapshot.step == step
    expected = build(tiny)[1].state_dict()
    if step:
        expected = torch.load(folder / "checkpoints" / f"step-{step:09d}.pt", weights_only=True)["model"]
    assert all(torch.equal(value, expected[name]) for name, value in snapshot.model.state_dict().items())


def test_linear_probes_are_kept_for_before_and_after_until_they_are_measured_again(folder: Path) -> None:
    found = json.loads(called(str(folder), "--linear", "--json"))
    kept = RunFolder(folder).probes()
    assert kept is not None
    assert {when: readings.step for when, readings in kept.linear.items()} == {"before": 0, "after": 24}
    assert kept.to_json()["linear"]["after"]["found"] == found["linear"]
    assert kept.to_json()["linear"]["before"]["found"] == found["before"]["linear"] != found["linear"]
    called(str(folder))
    again = RunFolder(folder).probes()
    assert again is not None
    assert again.linear == kept.linear
    assert "What can be read off each layer" in (folder / "report.html").read_text(encoding="utf-8")
    told = called(str(folder), "--linear")
    assert all(word in told for word in ("at step 0", "at step 24", "indicator_1"))


def test_mistakes_are_told_in_one_sentence(tmp_path: Path, tiny: RunConfig) -> None:
    with pytest.raises(RequestError, match="is not there; give a folder that holds a"):
        called(str(tmp_path / "nowhere"))
    with pytest.raises(RequestError, match="is neither a run folder nor a checkpoint"):
        called(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(tiny.to_json()))
    with pytest.raises(WorkError, match="has no checkpoint yet; --initial shows"):
        called(str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000001.pt").write_text("nothing")
    with pytest.raises(WorkError, match=r"step-000000001\.pt is not a checkpoint of a run, or it is damaged"):
        called(str(tmp_path / "checkpoints" / "step-000000001.pt"))


def test_an_interruption_of_linear_probes_is_one_line_and_the_folder_is_as_it_was(folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    command = [sys.executable, "-m", "eureka", "probe", str(folder), "--linear"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    process.stderr.readline()  # the probes are being fitted
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, "eureka: interrupted; run the same command again to go on.\n")
    assert sorted(folder.rglob("*")) == before
