"""The notebooks run from top to bottom, reduced."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.pages.notebooks import FOLDER, notebook_pages

REDUCED = {
    "diagnose_a_log": {},
    "race_a_gpt": {"STEPS": 10, "RACE_STEPS": 8, "BUDGET": 2},
    "paper_plot": {"STEPS": 30, "SEEDS": 1},
}


@pytest.mark.parametrize("name", sorted(REDUCED))
def test_a_notebook_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    if name == "race_a_gpt":
        pytest.importorskip("transformers")
    if name == "paper_plot":
        pytest.importorskip("matplotlib")
        monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(tmp_path)
    script = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    for key, value in REDUCED[name].items():
        script, replaced = re.subn(rf"^{key} = \d+", f"{key} = {value}", script, flags=re.MULTILINE)
        assert replaced == 1, key
    exec(compile(script, name, "exec"), {"__name__": "__notebook__"})
    assert capsys.readouterr().out.count("\n") >= 2


def test_every_notebook_is_run_and_is_a_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(REDUCED)
    pages = notebook_pages()
    for name in REDUCED:
        page = pages[f"notebooks/{name}.md"]
        assert page.startswith("# ")
        assert page.count("```python") >= 3
