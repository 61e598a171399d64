"""The benchmark: that it measures what it says, and prints what programs can read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from eureka.attention.mask import Causal, KeyPadding, NoMask, visible_keys
from eureka.attention.operator import make_operator
from eureka.attention.registry import FIXES
from eureka.bench import attention, timing
from eureka.bench.attention import STATISTICS, plan
from eureka.bench.formulas import FORMULAS, formula_of
from eureka.bench.memory import peak_megabytes
from eureka.bench.timing import Job, interleaved
from eureka.cli.bench import app
from eureka.errors import RequestError, WorkError


def test_one_json_document_with_a_row_for_each_mask_and_mode() -> None:
    done = CliRunner().invoke(app, ["attention", "--quick", "--op", "norm_softmax", "--n", "17", "--json"])
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [(row["op"], row["n"], row["mask"], row["mode"]) for row in rows] == [
        ("norm_softmax", 17, mask, mode) for mask in ("causal", "none", "padding") for mode in ("forward", "forward+backward")
    ]
    peaks = {(row["mask"], row["mode"]): row["peak_mb"] for row in rows}
    for mask in ("causal", "none", "padding"):
        gradients = 3 * 4 * 240 * 17 * 4 * 64 / 1e6  # float32, of queries, keys and values
        assert peaks[mask, "forward+backward"] > peaks[mask, "forward"] + gradients / 2


def test_times_are_ratios_to_sdpa_and_to_the_formula_of_the_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"sdpa": 2.0, "temperature": 3.0, "qk_norm": 5.0, "explicit softmax": 8.0, "explicit qk_norm": 20.0}
    monkeypatch.setattr(attention, "interleaved", lambda jobs, rounds: {name: seconds[name] for name in jobs})
    monkeypatch.setattr(attention, "peak_megabytes", lambda *_, **case: {"forward": 1.0, "forward+backward": 2.0})
    cases = [attention.Case(op, 17, "none") for op in ("temperature", "qk_norm")]
    costs = [(c.op, c.mode, c.time_vs_sdpa, c.time_vs_explicit, c.peak_mb) for c in attention.run(cases)]
    assert costs == [
        ("temperature", "forward", 1.5, 0.375, 1.0),
        ("temperature", "forward+backward", 1.5, 0.375, 2.0),
        ("qk_norm", "forward", 2.5, 0.25, 1.0),
        ("qk_norm", "forward+backward", 2.5, 0.25, 2.0),
    ]


def test_asking_for_what_is_not_measured_is_a_wrong_request() -> None:
    done = CliRunner().invoke(app, ["attention", "--op", "norm_softmax", "--n", "18"])
    assert isinstance(done.exception, RequestError)
    assert "--n 18" in str(done.exception)


def test_the_plan_has_every_operator_of_the_softmax_family_at_the_lengths_that_matter() -> None:
    cases = {(case.op, case.n, case.mask) for case in plan()}
    assert {("norm_softmax", n, mask) for n in (197, 1024, 4096) for mask in ("none", "causal", "padding")} <= cases
    assert {(op, n, "none") for op in ("temperature", "qk_norm", "ssmax") for n in (197, 1024)} <= cases
    assert {case.op for case in plan()} <= {*FIXES.names(), *STATISTICS}
    assert len(plan(quick=True)) < len(plan()) / 3


MASKS = [NoMask(), Causal(), KeyPadding(torch.arange(9)[None] < torch.tensor([[6], [9]]))]
OPERATORS = [name for name in FORMULAS if name not in STATISTICS]


@pytest.mark.parametrize(
    ("name", "kind"),  # the formula of sigmoid is benchmarked without a mask only
    [(name, kind) for name in OPERATORS for kind in (MASKS[:1] if name == "sigmoid" else MASKS)],
)
def test_the_printed_formulas_compute_the_same_as_the_operators(name: str, kind: Any) -> None:
    """A baseline that computes something else would be no baseline."""
    g = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 9, 4, generator=g) * 0.5 for _ in range(3))
    operator = make_operator(name, heads=2, head_dim=4, total_steps=10)
    visible = visible_keys(kind, 9, 9)
    rows = slice(1, None) if isinstance(kind, Causal) else slice(None)  # one visible key: 0/0 in the printed formula
    got = formula_of(name)[1](q, k, v, visible)
    torch.testing.assert_close(got[:, :, rows], operator(q, k, v, kind)[:, :, rows], rtol=1e-4, atol=1e-4)


def test_peaks_are_those_of_the_job_and_not_of_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "planted_jobs.py").write_text(
        "def make(megabytes):\n"
        "    held = bytearray(b'x') * 80_000_000\n"
        "    return {'some': lambda: bytearray(b'x') * (megabytes * 1_000_000), 'none': lambda: held[0]}\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = peak_megabytes("planted_jobs:make", megabytes=40)
    assert 38 < found["some"] < 45
    assert found["none"] < 5


def test_a_job_that_fails_in_its_process_says_what_it_was() -> None:
    with pytest.raises(WorkError, match="no_such_function"):
        peak_megabytes("eureka.bench.attention:no_such_function", op="softmax")


class Clock:
    """Processor time as the jobs themselves spend it."""

    def __init__(self) -> None:
        self.now = 0.0

    def process_time(self) -> float:
        return self.now

    def job(self, *costs: float) -> Job:
        """What costs this much from call to call, the last for ever."""
        left = list(costs)

        def work() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return work


def test_a_job_gets_its_fastest_round_whatever_disturbed_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    jobs = {"steady": clock.job(0.05), "disturbed": clock.job(9.0, 7.0, 0.3, 0.15)}
    times = interleaved(jobs, rounds=4, budget=100.0)
    assert times == {"steady": pytest.approx(0.05), "disturbed": pytest.approx(0.15)}


def test_a_short_job_is_called_often_enough_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    assert interleaved({"short": clock.job(0.05, 0.001)}, rounds=2, budget=100.0) == {"short": pytest.approx(0.001)}
    assert clock.now == pytest.approx(0.05 + 0.001 + 2 * 20 * 0.001)


def test_a_spent_budget_still_leaves_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)
    interleaved({"long": clock.job(1.0)}, rounds=9, budget=0.5)
    assert clock.now == pytest.approx(3.0)
