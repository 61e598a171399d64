"""Hugging Face's models in our own loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from eureka.attention.operator import Operator
from eureka.config import RunConfig, run_config
from eureka.errors import RequestError
from eureka.experiment import build, run
from eureka.recipes import recipe
from eureka.runs import Metrics

pytest.importorskip("transformers")

FEW: dict[str, Any] = {"training.steps": 6, "training.warmup": 1, "training.log_every": 2, "training.batch_size": 4}
FEW |= {"training.validation_samples": 8, "training.checkpoint_every": 3, "training.early_stop": False}


def on_induction(model: str, fix: str) -> RunConfig:
    return run_config(
        task={"name": "induction"}, model={"name": model, "dim": 16}, attention={"name": fix}, training={"steps": 6, "warmup": 1}
    )


@pytest.mark.parametrize("model", ["hf_roberta", "hf_gpt2"])
@pytest.mark.parametrize("fix", ["softmax", "norm_softmax", "learnable_temperature"])
def test_the_operator_of_the_config_is_in_every_layer(model: str, fix: str) -> None:
    task, built = build(on_induction(model, fix))
    operators = [module for module in built.modules() if isinstance(module, Operator)]
    assert len(operators) == (3 if model == "hf_roberta" else 2)
    assert all(type(operator).__name__.lower() == fix.replace("_", "") for operator in operators)
    assert built(task.sample(2, torch.Generator()).inputs).shape == (2, 48, 64)


def test_gpt2_sees_no_later_token_and_roberta_does() -> None:
    for name, blind in (("hf_gpt2", True), ("hf_roberta", False)):
        task, model = build(on_induction(name, "norm_softmax"))
        tokens = task.sample(2, torch.Generator()).inputs
        other = tokens.clone()
        other[:, -1] = (tokens[:, -1] + 1) % 64
        with torch.no_grad():
            assert torch.allclose(model(tokens)[:, :-1], model(other)[:, :-1], atol=1e-6) == blind


def test_an_interrupted_run_with_a_schedule_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    config = recipe("hf/gpt2_regression").but(FEW | {"attention.name": "heat_treatment", "model.dim": 16})
    whole = run(config, tmp_path / "whole").folder

    def stop(metrics: Metrics) -> None:
        if metrics.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "cut", stop)
    cut = run(config, tmp_path / "cut").folder
    assert cut.metrics() == whole.metrics()


def test_a_task_with_one_answer_a_sample_is_refused() -> None:
    config = run_config(task={"name": "tiles"}, model={"name": "hf_gpt2"}, attention={"name": "softmax"}, training={})
    with pytest.raises(RequestError, match="answers at every token; the task asks for one answer a sample"):
        build(config)
