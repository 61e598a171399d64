"""Forks of a run go on from its checkpoint, each with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.experiment import run
from eureka.runs import Outcome, RunFolder
from eureka.study.forking import REMEDIES, fork_run


@pytest.fixture
def source(tmp_path: Path, make_tiny: Callable[..., RunConfig]) -> RunFolder:
    config = make_tiny(steps=20, checkpoint_every=10).but({"attention.name": "softmax"})
    return run(config, tmp_path / "source").folder


def test_the_fork_that_waits_is_the_run_continued(source: RunFolder, tmp_path: Path, make_tiny: Callable[..., RunConfig]) -> None:
    forks = fork_run(source, tmp_path / "race", at=15, names=["rate_x10"], steps=20)
    assert forks.step == 10
    for config, folder in zip(forks.study.configs, forks.study.prepare(), strict=True):
        run(config, folder)
    whole = run(make_tiny(steps=30, early_stop=True).but({"attention.name": "softmax"}), tmp_path / "whole").folder
    waited, faster = (RunFolder(tmp_path / "race" / forks.arms[name]).metrics() for name in ("wait", "rate_x10"))
    assert waited == whole.metrics()
    assert [line.step for line in faster] == [line.step for line in waited]
    assert faster[:2] == waited[:2]
    assert faster[2] != waited[2]


def test_the_remedy_that_leaps_first_is_named_with_its_steps_from_the_fork(source: RunFolder, tmp_path: Path) -> None:
    forks = fork_run(source, tmp_path / "race", at=None, names=["rate_x10", "rate_x3"], steps=20)
    folders = dict(zip(forks.arms, forks.study.prepare(), strict=True))
    assert forks.rows() == []
    for name, leap in (("wait", None), ("rate_x10", 30), ("rate_x3", 25)):
        end = Outcome("finished", 40, 1.0, 640, leap, leap, (), 0.5, 0.9)
        folders[name].write_result(end)
    assert forks.rows()[1] == ("rate_x10", "10", "0.500", "0.900")
    assert forks.verdict().startswith("rate_x3 leaps first, after 5 steps; waiting has not.")


def test_clear_positions_rescale_what_the_weights_have_become(source: RunFolder, tmp_path: Path) -> None:
    forks = fork_run(source, tmp_path / "race", at=None, names=["clear_positions"], steps=5)
    forks.study.prepare()
    weights = [
        torch.load(tmp_path / "race" / forks.arms[name] / "checkpoints" / "step-000000020.pt", weights_only=True)["model"]
        for name in ("wait", "clear_positions")
    ]
    (name,) = [name for name in weights[0] if not torch.equal(weights[0][name], weights[1][name])]
    assert "position" in name
    factor = weights[1][name] / weights[0][name]
    assert torch.allclose(factor, factor.flatten()[0])


def test_forks_are_not_begun_again(source: RunFolder, tmp_path: Path) -> None:
    forks = fork_run(source, tmp_path / "race", at=None, names=["rate_x3"], steps=10)
    run(forks.study.configs[0], forks.study.prepare()[0])
    before = sorted((tmp_path / "race" / forks.arms["wait"] / "checkpoints").iterdir())
    forks.study.prepare()
    assert before == sorted((tmp_path / "race" / forks.arms["wait"] / "checkpoints").iterdir())


def test_a_remedy_that_changes_nothing_is_left_out(tmp_path: Path, make_tiny: Callable[..., RunConfig]) -> None:
    source = run(make_tiny(steps=20, weight_decay=0.0), tmp_path / "source").folder
    forks = fork_run(source, None, at=None, names=list(REMEDIES), steps=None)
    assert forks.skipped == {
        "norm_softmax": "the run is like that already.",
        "clear_positions": "the run is like that already.",
        "no_weight_decay": "the run is like that already.",
    }
    assert forks.study.folder == Path("runs/race/source-at-20")
    assert forks.study.configs[0].training.steps == 40


def test_any_multiple_of_the_rate_is_a_remedy(source: RunFolder, tmp_path: Path) -> None:
    waits, faster = fork_run(source, tmp_path / "race", at=None, names=["rate_x1000"], steps=5).study.configs
    assert faster.training.lr == 1000 * waits.training.lr


def test_a_mistake_is_one_sentence(source: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"unknown remedy of a run folder 'rate_tenths'; did you mean 'rate_tenth'\?"):
        fork_run(source, None, at=None, names=["rate_tenths"], steps=None)
    with pytest.raises(RequestError, match=r"--at 5: .* has checkpoints of the steps 10, 20 only"):
        fork_run(source, None, at=5, names=None, steps=None)
    with pytest.raises(RequestError, match="is not there; give a folder that `eureka run` has written"):
        fork_run(RunFolder(tmp_path / "nowhere"), None, at=None, names=None, steps=None)
