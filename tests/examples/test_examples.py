"""Every example runs, at reduced length; what they show at full length stands in their docstrings."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eureka.errors import EurekaError
from eureka.tasks.registry import TASKS

FOLDER = Path(__file__).parents[2] / "examples"

pytest.importorskip("transformers")


def main_of(name: str) -> Callable[[list[str]], Any]:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main  # type: ignore[no-any-return]


def test_every_example_is_tested_here() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {"torch_window_sum", "gpt2_induction", "roberta_masked_text"}


@pytest.mark.parametrize("fix", ["softmax", "heat_treatment"])
def test_a_transformer_of_torch_on_window_sum(fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = main_of("torch_window_sum")(["--steps", "6", "--fix", fix])
    assert 0 <= accuracy <= 1
    said = capsys.readouterr().out
    assert f"patched ['layers.layers.0.self_attn'] with {fix}" in said
    assert "step     0: entropy 0." in said


def test_gpt2_on_induction(capsys: pytest.CaptureFixture[str]) -> None:
    main_of("gpt2_induction")(["--steps", "4", "--fix", "norm_softmax"])
    said = capsys.readouterr().out
    assert said.count("of its attention goes where an induction head looks") == 2
    assert "accuracy in the end" in said


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_roberta_on_masked_text(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    try:
        TASKS.build("masked_text")
    except EurekaError as error:
        pytest.skip(f"the text is not here: {error}")
    trainer = main_of("roberta_masked_text")(["--steps", "10"])
    assert [line["step"] for line in trainer.state.log_history if "loss" in line] == [5, 10]
    assert "entropy of each layer" in capsys.readouterr().out
