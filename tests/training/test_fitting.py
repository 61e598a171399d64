"""A checkpoint that is damaged, or of another run, is never gone on from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from eureka.config import RunConfig
from eureka.errors import DamagedRunError
from eureka.experiment import run
from eureka.runs import RunFolder
from eureka.training.checkpoint import checkpoint_files
from tests.training.killing import Killed, killed_at

State = dict[str, Any]


def without(key: str) -> Callable[[State], object]:
    return lambda state: state.pop(key)


def other_weights(state: State) -> None:
    name = next(iter(state["model"]))
    state["model"][name] = torch.zeros(3)


def other_moments(state: State) -> None:
    first = next(iter(state["optimiser"]["state"].values()))
    first["exp_avg"] = torch.zeros(7)


DAMAGE: dict[str, tuple[Callable[[State], object], str]] = {
    "no weights": (without("model"), "holds no model"),
    "no generator": (without("data_generator"), "holds no data_generator"),
    "of another run": (lambda state: state.update(run="0" * 12), "belongs to another run"),
    "an impossible step": (lambda state: state.update(step=10**9), "holds step 1000000000, which cannot be"),
    "weights of another shape": (other_weights, "holds weights of another model"),
    "weights that are a list": (lambda state: state.update(model=[1]), "holds weights of another model"),
    "moments of another shape": (other_moments, "holds the state of another optimiser"),
    "an optimiser without groups": (lambda state: state["optimiser"].update(param_groups=[]), "state of another optimiser"),
    "a generator that is none": (lambda state: state.update(data_generator=torch.zeros(3)), "holds no state of a generator"),
    "counts below zero": (lambda state: state["progress"].update(bytes=-1), "holds counts that cannot be"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_newest_checkpoint_that_does_not_fit_is_passed_over_with_one_line(
    tiny: RunConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    change, told = DAMAGE[damage]
    run(tiny, tmp_path / "whole")
    with pytest.raises(Killed):
        run(tiny, tmp_path / "broken", killed_at(15))
    newest = checkpoint_files(tmp_path / "broken/checkpoints")[-1]
    state = torch.load(newest, weights_only=True)
    change(state)
    torch.save(state, newest)
    run(tiny, tmp_path / "broken")
    assert [told in record.message for record in caplog.records] == [True]
    assert (tmp_path / "broken/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


@pytest.mark.parametrize("content", [b"", b"PK", b"nonsense" * 100])
def test_a_file_that_is_no_checkpoint_is_passed_over(
    tiny: RunConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    with pytest.raises(Killed):
        run(tiny, tmp_path, killed_at(15))
    checkpoint_files(tmp_path / "checkpoints")[-1].write_bytes(content)
    run(tiny, tmp_path)
    assert "is damaged; going on from the one before it" in caplog.text


@pytest.mark.parametrize("order", [(0, 0, 1), (1, 0)])
def test_duplicated_and_reversed_lines_are_noticed(tiny: RunConfig, tmp_path: Path, order: tuple[int, ...]) -> None:
    with pytest.raises(Killed):
        run(tiny, tmp_path, killed_at(15))
    lines = (tmp_path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "metrics.jsonl").write_bytes(b"".join(lines[i] for i in order) + b"".join(lines[2:]))
    with pytest.raises(DamagedRunError, match=r"metrics\.jsonl: line \d is of step 5 and comes after step (5|10)"):
        run(tiny, tmp_path)
    with pytest.raises(DamagedRunError, match="move the run folder away"):
        RunFolder(tmp_path).metrics()


@pytest.mark.parametrize("name", ["checkpoints", "attention", "metrics.jsonl", ".lock", "attention.jsonl"])
def test_a_link_in_a_run_folder_is_not_followed(tiny: RunConfig, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    if "." in name:
        elsewhere.write_text("precious")
    else:
        elsewhere.mkdir()
        (elsewhere / "step-000000001.pt").write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(elsewhere)
    with pytest.raises(DamagedRunError, match="is a link, and a run writes and deletes only in its own folder"):
        run(tiny, tmp_path / "run")
    kept = elsewhere if elsewhere.is_file() else elsewhere / "step-000000001.pt"
    assert kept.read_text() == "precious"
    assert elsewhere.is_file() or [path.name for path in elsewhere.iterdir()] == ["step-000000001.pt"]
