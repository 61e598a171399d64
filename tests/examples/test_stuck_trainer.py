"""The example of a stuck Trainer, at reduced length: its cause is named, and remedies are raced."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from eureka.doctor import diagnose
from eureka.doctor.diagnose import CHECKS

pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")

FILE = Path(__file__).parents[2] / "examples" / "stuck_trainer" / "train.py"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)  # the Trainer makes its folder here
    monkeypatch.setattr(diagnose, "CHECKS", [check for check in CHECKS if check.name in ("movement", "rate")])
    spec = importlib.util.spec_from_file_location("stuck_trainer", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_cause_is_named_and_remedies_are_raced(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(6, 8)
    said = capsys.readouterr().out
    assert "lr_too_small" in said
    assert "At 3e-6 the loss falls by" in said
    assert all(f"{name} " in said for name in ("rate_x1000", "rate_x10", "norm_softmax"))


def test_the_script_is_about_forty_lines() -> None:
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if line.strip()]
    assert len(lines) <= 45
