from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import typer
from typer.testing import CliRunner

from eureka.cli.probe import probe
from eureka.errors import RequestError, WorkError
from eureka.experiment import RunConfig, build, run

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
    assert sum("blocks.0.attention" in line for line in lines) == 2
    assert all(word in lines[2] for word in ("entropy / log n", "spread of q·k", "|∂W_Q|", "q, k to v"))


def test_the_document_holds_the_numbers_of_the_last_checkpoint(folder: Path, tiny: RunConfig) -> None:
    found = json.loads(called(str(folder), "--json"))
    assert found["step"] == 24
    values = found["sites"][0]["values"]
    assert len(values["entropy"]) == 2
    state = torch.load(folder / "checkpoints" / "step-000000024.pt", weights_only=True)["model"]
    task, model = build(tiny)
    model.load_state_dict(state)
    batch = task.sample(256, torch.Generator().manual_seed(20_250_101), "validation")
    task.loss(model(batch.inputs), batch).backward()
    gradient = model.blocks[0].attention.qkv.weight.grad.abs().unflatten(0, (3, 2, -1)).mean(dim=(2, 3))
    for row, name in zip(gradient.tolist(), ("grad_q", "grad_k", "grad_v"), strict=True):
        assert values[name] == pytest.approx(row, rel=1e-4)


def test_an_earlier_checkpoint_and_the_beginning_can_be_looked_at(folder: Path) -> None:
    first = sorted((folder / "checkpoints").glob("*.pt"))[0]
    steps = [json.loads(called(*arguments, "--json"))["step"] for arguments in ((str(first),), (str(folder), "--initial"))]
    assert steps == [21, 0]


def test_answers_that_can_be_read_off_are_listed(folder: Path) -> None:
    found = json.loads(called(str(folder), "--linear", "--json"))["linear"]
    assert {each["answer"] for each in found} >= {"indicator_1", "target_2", "label"}
    assert "indicator_1" in called(str(folder), "--linear")


def test_mistakes_are_told_in_one_sentence(tmp_path: Path, tiny: RunConfig) -> None:
    with pytest.raises(RequestError, match="is not there; give a folder that holds a"):
        called(str(tmp_path / "nowhere"))
    with pytest.raises(RequestError, match="is neither a run folder nor a checkpoint"):
        called(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(tiny.model_dump(mode="json")))
    with pytest.raises(WorkError, match="has no checkpoint yet; --initial shows"):
        called(str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000001.pt").write_text("nothing")
    with pytest.raises(WorkError, match=r"step-000000001\.pt is not a checkpoint of a run, or it is damaged"):
        called(str(tmp_path / "checkpoints" / "step-000000001.pt"))
