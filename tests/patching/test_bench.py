from __future__ import annotations

import pytest

from eureka.bench import patched


@pytest.mark.parametrize("name", patched.MODELS)
def test_every_fix_and_the_probe_have_a_row_beside_the_unpatched_step(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for size, value in {"DIM": 16, "DEPTH": 1, "HEADS": 2, "TOKENS": 16, "WORDS": 50}.items():
        monkeypatch.setattr(patched, size, value)
    rows = patched.run((name,), rounds=1)
    assert [row["what"] for row in rows[:4]] == [*patched.FIXES, "probe every 50 steps"]
    assert {row["padded"] for row in rows} == {False, True}
    assert all(0.1 < row["vs_unpatched"] < 10 for row in rows)
