"""The bench of linear probes: both sides are measured."""

from __future__ import annotations

from benchmarks.probes import run


def test_a_probe_is_timed_with_one_thread_and_with_all() -> None:
    [cost] = run(((8, 2),), rounds=1)
    assert cost.one_thread > 0
    assert cost.ratio == cost.all_threads / cost.one_thread
