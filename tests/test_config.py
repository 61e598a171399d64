"""The config of a run: its names on disk, its checks, and that they happen once."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
from pydantic import BaseModel
from torch import nn

from eureka import registry
from eureka.config import RunConfig, run_config
from eureka.errors import RequestError, UnknownNameError
from eureka.recipes import RECIPES, recipe

DIGESTS = {
    "tiles": "94741892b405",
    "digits": "5325031cf260",
    "small/main": "da5e7fd8659d",
    "small/main_resnet9": "48fc273ad948",
    "small/chain_tiles": "42ca7ee062cb",
    "small/induction": "14aa35bd1712",
    "small/masked_text": "82f6286ae676",
    "hf/gpt2_regression": "b7c94b65b6ed",
    "hf/gpt2_induction": "6c930d5fefb2",
    "qds/narrow": "9916b861f5f4",
    "paper/main": "584da420ad3b",
    "paper/main_heat_treatment": "4597a9f12a0e",
}
"""Recorded before configs held typed parts. Run folders are named after them, so they must never change."""
CHANGED: list[tuple[str, dict[str, Any], str]] = [
    ("tiles", {"attention.name": "norm_softmax"}, "18768b8eaa2d"),
    ("tiles", {"attention.name": "norm_softmax_var", "attention.cap": 3}, "17bc2f0c1cb4"),
    ("tiles", {"attention.name": "norm_softmax", "attention.cap": None}, "6d6e2d6ca25d"),
    ("tiles", {"attention.name": "heat_treatment", "attention.share": "0.25"}, "6f8c39441af8"),
    ("tiles", {"training.lr": 0.001, "training.seed": 4, "model.mlp_ratio": 3}, "274700779159"),
    ("digits", {"model.patch": [4, 8]}, "e23dfdcd9da9"),
    ("digits", {"model.name": "vit", "model.dim": 32, "model.depth": 2, "model.patch": 8}, "001dcb3cfb02"),
    ("digits", {"model.name": "resnet9", "model.width": 8}, "82f8caec67fa"),
    ("small/induction", {"model.tied": True, "training.batch_size": 8}, "89bc8c46db36"),
    ("small/main", {"task.reading": 1, "task.name": "no_fixed_position"}, "7ff5c0103055"),
]


@pytest.mark.parametrize("name", DIGESTS)
def test_the_digest_of_a_recipe_is_as_recorded(name: str) -> None:
    assert recipe(name).digest() == DIGESTS[name]


@pytest.mark.parametrize(("name", "changes", "digest"), CHANGED)
def test_the_digest_of_a_changed_recipe_is_as_recorded(name: str, changes: dict[str, Any], digest: str) -> None:
    assert recipe(name).but(changes).digest() == digest


@pytest.mark.parametrize("name", RECIPES)
def test_a_config_survives_its_way_through_a_file(name: str) -> None:
    config = recipe(name)
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_a_config_can_be_copied_and_pickled(tiny: RunConfig) -> None:
    assert pickle.loads(pickle.dumps(tiny)) == copy.deepcopy(tiny) == tiny


def test_settings_are_checked_when_they_are_given_and_not_again(tiny: RunConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[str] = []
    plain = registry.validated

    def counted(model: type[BaseModel], given: dict[str, Any], what: str) -> BaseModel:
        checks.append(what)
        return plain(model, given, what)

    monkeypatch.setattr(registry, "validated", counted)
    changed = tiny.but({"attention.name": "temperature"})
    assert checks == ["fix 'temperature'"]
    changed.digest()
    changed.to_json()
    changed.attention.build()
    assert checks == ["fix 'temperature'"]


def test_a_part_without_a_name_says_which_names_there_are() -> None:
    with pytest.raises(RequestError, match=r"^attention\.name is missing; it is one of softmax, temperature,"):
        run_config(task={"name": "tiles"}, model={"name": "encoder"}, attention={}, training={})


def test_a_stored_config_that_lacks_a_part_or_has_another_one_is_refused(tiny: RunConfig) -> None:
    stored = tiny.to_json()
    with pytest.raises(UnknownNameError, match=r"unknown part of a config 'atention'; did you mean 'attention'\?"):
        RunConfig.from_json({**stored, "atention": {}})
    with pytest.raises(RequestError, match=r"^the config does not say its task, training\.$"):
        RunConfig.from_json({"model": stored["model"], "attention": stored["attention"]})


class Convolutional(nn.Module):
    def __init__(self, input_shape: tuple[int, ...], classes: int, *, width: int = 4) -> None:
        super().__init__()


@pytest.mark.parametrize("model", ["resnet9", f"{__name__}:Convolutional"])
def test_a_fix_in_a_model_without_attention_is_refused_because_it_would_change_nothing(model: str) -> None:
    plain = recipe("digits").but({"model.name": model})
    assert plain.attention.name == "softmax"
    with pytest.raises(
        RequestError, match=r"has no attention that a fix could change .*norm_softmax would do nothing: give --fix softmax"
    ):
        plain.but({"attention.name": "norm_softmax"})


@pytest.mark.parametrize("model", ["encoder", "vit", "decoder", "hf_gpt2", "hf_roberta"])
def test_every_transformer_takes_a_fix(model: str) -> None:
    assert recipe("digits").but({"model.name": model, "attention.name": "norm_softmax"}).attention.name == "norm_softmax"
