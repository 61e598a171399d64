"""What trained runs do on data that they were not trained on."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import Generator

from benchmarks.shifted import accuracy, run
from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.experiment import run as train
from eureka.runs import RunFolder, StoredConfig, find_runs
from eureka.snapshots import SEED, trained_snapshot


def test_runs_that_differ_by_their_seed_share_a_row_and_unfinished_ones_have_none(tmp_path: Path, tiny: RunConfig) -> None:
    for seed in (0, 1):
        train(tiny.but({"training.seed": seed}), tmp_path / str(seed))
    RunFolder(tmp_path / "unfinished").create()
    RunFolder(tmp_path / "unfinished").write_config(StoredConfig(tiny.to_json()))
    [row] = run(find_runs(tmp_path), {"task.noise": 0.0}, samples=256)
    assert (row.fix, row.start, row.lr, row.runs) == ("norm_softmax", "paper", 0.001, 2)
    snapshot = trained_snapshot(RunFolder(tmp_path / "0"))
    batch = snapshot.task.sample(256, Generator().manual_seed(SEED), "validation")
    guessed = snapshot.model.eval()(batch.inputs).argmax(dim=-1)
    right = [int(a) == int(b) for a, b in zip(guessed, batch.labels, strict=True)]
    assert accuracy(snapshot.model, snapshot.task, 256) == pytest.approx(sum(right) / 256)
    assert row.own_lowest <= row.own
    assert row.shifted != row.own


def test_a_change_that_a_trained_model_cannot_take_is_refused(tmp_path: Path, tiny: RunConfig) -> None:
    train(tiny, tmp_path / "one")
    with pytest.raises(RequestError, match="changes the shape of the inputs"):
        run(find_runs(tmp_path), {"task.tokens": 3}, samples=16)
