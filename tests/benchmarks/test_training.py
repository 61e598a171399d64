"""The bench of the training loop: that it counts and compares what it says."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks import training
from benchmarks.training import loop_cost, step_flops
from eureka.bench.timing import Job
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
    assert loop_cost("tiles", config, 1e11, rounds=2).batch_size == 8


@pytest.mark.parametrize(("probe_every", "ours"), [(0, 5.0), (50, 6.0)])
def test_our_step_has_its_share_of_logs_maps_and_probes_and_the_bare_one_of_validation(
    probe_every: int, ours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"ours": 1.0, "log": 50.0, "map": 2.0, "probed": 51.0, "bare": 1.0, "validation": 25.0}

    def clock(jobs: Mapping[str, Job], rounds: int, budget: float) -> dict[str, float]:
        for job in jobs.values():
            job()
        return {name: seconds[name] for name in jobs}

    monkeypatch.setattr(training, "interleaved", clock)
    few = {"training.steps": 4, "training.warmup": 1}  # so few that attention is drawn at every step
    config = recipe("tiles").but({**SMALL, **few, "training.log_every": 25, "training.probe_every": probe_every})
    cost = loop_cost("tiles", config, rate=1e9, rounds=2)
    assert cost.vs_bare_loop == pytest.approx(ours / 2.0)
    assert cost.samples_per_s == pytest.approx(4 / ours)
    assert cost.share_of_matmul_rate == pytest.approx(step_flops(config) / ours / 1e9)
