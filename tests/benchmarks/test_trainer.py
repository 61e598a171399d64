"""The bench beside a bare Trainer: that both sides do the same work, and that it compares what it says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from benchmarks import trainer
from benchmarks.trainer import make_trainer, trainer_cost, trainer_steps
from eureka.bench.timing import Job
from eureka.experiment import build
from eureka.recipes import recipe

SMALL = {"model.dim": 16, "model.depth": 1, "training.batch_size": 4, "training.validation_samples": 4, "training.log_every": 10}
CONFIG = recipe("hf/gpt2_regression").but(SMALL)


def test_the_trainer_gets_the_same_weights_and_the_same_loss_unpatched(tmp_path: Path) -> None:
    task, ours = build(CONFIG)
    theirs = make_trainer(CONFIG, tmp_path).model
    batch = task.sample(4, torch.Generator().manual_seed(1))
    for (name, a), b in zip(ours.named_parameters(), theirs.model.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert not any(hasattr(type(module), "_eureka_base") for module in theirs.modules())
    loss = task.loss(ours(batch.inputs), batch)
    torch.testing.assert_close(theirs(batch.inputs, batch.labels)["loss"], loss)


def test_each_call_is_one_step_of_the_trainer_and_it_ends_with_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = make_trainer(CONFIG, tmp_path)
    monkeypatch.setattr(trainer, "make_trainer", lambda config, place: made)
    with trainer_steps(CONFIG, tmp_path) as step:
        for expected in (1, 2, 3):
            assert made.state.global_step == expected
            before = made.model.model.head.weight.detach().clone()
            step()
            assert not torch.equal(made.model.model.head.weight, before)
    assert made.state.global_step == 4


def test_our_step_has_its_share_of_logs_maps_and_probes_and_the_trainers_of_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"trainer": 1.0, "ours": 1.0, "log": 5.0, "map": 200.0, "probed": 26.0, "validation": 10.0, "data": 0.25}

    def clock(jobs: Mapping[str, Job], rounds: int, budget: float) -> dict[str, float]:
        for job in jobs.values():
            job()
        return {name: seconds[name] for name in jobs}

    monkeypatch.setattr(trainer, "interleaved", clock)
    cost = trainer_cost("hf/gpt2_regression", CONFIG, rounds=2)  # of 4,000 steps every 200th draws a map, every 50th probes
    assert cost.vs_trainer == pytest.approx((1 + 0.5 + 1 + 0.5) / 2)
    assert (cost.step_alone, cost.data_share) == (1.0, 0.25)
