"""Steps of patched models: what is timed, and that costs are ratios to the model's own step."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from benchmarks import patched
from eureka.bench import attention, model_steps
from eureka.bench.timing import Job

pytest.importorskip("transformers", reason="transformers is not installed")
PROBE = "probe every 50 steps"
SECONDS = {"plain": 2.0, "softmax": 2.0, "norm_softmax": 3.0, "norm_softmax_var": 4.0, "probe": 102.0}
COSTS = {"softmax": 1.0, "norm_softmax": 1.5, "norm_softmax_var": 2.0, PROBE: 2.0}


@pytest.fixture(autouse=True)
def small_and_clocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models, whose steps are done once and take as long as `SECONDS` says."""

    def clock(jobs: Mapping[str, Job], rounds: int, budget: float) -> dict[str, float]:
        for job in jobs.values():
            job()
        return {name: SECONDS[name] for name in jobs}

    for size, value in {"DIM": 16, "DEPTH": 1, "HEADS": 2, "TOKENS": 16, "WORDS": 50}.items():
        monkeypatch.setattr(model_steps, size, value)
    monkeypatch.setattr(model_steps, "interleaved", clock)


@pytest.mark.parametrize("name", model_steps.MODELS)
def test_every_fix_and_the_probe_are_measured_beside_the_unpatched_step(name: str) -> None:
    costs = patched.run((name,), rounds=1)
    assert [(cost.model, cost.padded, cost.what, cost.vs_unpatched) for cost in costs] == [
        (name, padded, what, ratio) for padded in (False, True) for what, ratio in COSTS.items()
    ]


def test_the_plan_has_a_step_of_each_patched_model_unless_transformers_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {(case.model, case.mask) for case in attention.plan() if case.model and case.op == "norm_softmax"}
    assert found == {(model, mask) for model in ("roberta", "gpt2") for mask in ("whole", "padded")}
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    assert not any(case.model for case in attention.plan())


def test_a_patched_step_is_listed_beside_the_model_s_own() -> None:
    cases = [case for case in attention.plan() if case.model == "gpt2" and case.op != "softmax"]
    found = [(cost.op, cost.n, cost.mask, cost.mode, cost.time_vs_sdpa) for cost in attention.run(cases, rounds=1)]
    assert found == [
        (op, 16, mask, "gpt2 step", COSTS[op]) for mask in ("padded", "whole") for op in ("norm_softmax", "norm_softmax_var")
    ]
