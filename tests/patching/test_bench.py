from __future__ import annotations

import pytest

from eureka.bench import attention, patched


def shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, value in {"DIM": 16, "DEPTH": 1, "HEADS": 2, "TOKENS": 16, "WORDS": 50}.items():
        monkeypatch.setattr(patched, size, value)


@pytest.mark.parametrize("name", patched.MODELS)
def test_every_fix_and_the_probe_have_a_row_beside_the_unpatched_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    rows = patched.run((name,), rounds=1)
    assert [row["what"] for row in rows[:4]] == [*patched.FIXES, "probe every 50 steps"]
    assert {row["padded"] for row in rows} == {False, True}
    assert all(0.1 < row["vs_unpatched"] < 10 for row in rows)


def test_the_plan_has_a_step_of_each_patched_model_unless_transformers_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    found = {(case.model, case.mask) for case in attention.plan() if case.model and case.op == "norm_softmax"}
    assert found == {(model, mask) for model in ("roberta", "gpt2") for mask in ("whole", "padded")}
    monkeypatch.setattr(attention, "find_spec", lambda name: None)
    assert not any(case.model for case in attention.plan())


def test_a_patched_step_is_a_row_beside_the_model_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    shrink(monkeypatch)
    cases = [case for case in attention.plan() if case.model == "gpt2" and case.op != "softmax"]
    rows = list(attention.run(cases, rounds=1))
    assert [(row.op, row.n, row.mask, row.mode) for row in rows] == [
        (op, 16, mask, "gpt2 step") for mask in ("padded", "whole") for op in ("norm_softmax", "norm_softmax_var")
    ]
    assert all(row.time_vs_sdpa is not None and 0.1 < row.time_vs_sdpa < 10 for row in rows)
