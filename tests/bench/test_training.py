"""The bench of the training loop: that it counts and compares what it says."""

from __future__ import annotations

import pytest

from eureka.bench import training
from eureka.bench.training import measure, step_flops
from eureka.recipes import recipe

SMALL = {"training.batch_size": 4, "training.validation_samples": 4, "model.depth": 1}


def test_the_operations_of_a_step_are_those_of_its_matrix_products() -> None:
    config = recipe("tiles").but({"training.batch_size": 8})
    assert step_flops(config.but({"training.batch_size": 64})) == pytest.approx(8 * step_flops(config))
    deeper = step_flops(config.but({"model.depth": 4})) - step_flops(config.but({"model.depth": 2}))
    shallow = step_flops(config.but({"model.depth": 2})) - step_flops(config.but({"model.depth": 1}))
    assert deeper == pytest.approx(2 * shallow)


def test_a_step_that_is_too_large_is_timed_with_fewer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    config = recipe("tiles").but({**SMALL, "training.batch_size": 64})
    monkeypatch.setattr(training, "LARGEST", step_flops(config) / 8)
    assert measure("tiles", config, 1e11, rounds=2).batch_size == 8


@pytest.mark.parametrize("probe_every", [0, 50])
def test_a_row_compares_our_step_with_the_bare_one(probe_every: int) -> None:
    config = recipe("tiles").but({**SMALL, "training.probe_every": probe_every})
    row = measure("tiles", config, 1e11, rounds=2)
    assert row.vs_bare_loop > 0.5
    assert 0 < row.share_of_matmul_rate < 1
    assert row.samples_per_s > 4
