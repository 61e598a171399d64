"""Studies described in files: what they mean and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eureka.errors import RequestError
from eureka.study.plan import read_plan

ROOT = Path(__file__).parent.parent.parent


def plan(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    return path


def test_variants_times_grid_with_a_number_of_seeds(tmp_path: Path) -> None:
    text = """
recipe: tiles
set: {training.steps: 500}
variants: [{attention.name: softmax}, {attention.name: softmax, training.qk_lr_scale: 10}]
grid: {training.lr: [1e-4, 3e-4], training.seed: 3}
"""
    study = read_plan(plan(tmp_path, text), tmp_path)
    assert len(study.configs) == 2 * 2 * 3
    assert {config.training.steps for config in study.configs} == {500}
    assert {config.training.lr for config in study.configs} == {1e-4, 3e-4}  # YAML takes 1e-4 for a text; people do not
    assert {config.training.qk_lr_scale for config in study.configs} == {1.0, 10.0}


def test_the_same_run_is_done_only_once(tmp_path: Path) -> None:
    text = "recipe: tiles\nvariants: [{attention.name: softmax}, {attention.name: softmax}]\ngrid: {training.seed: [0, 0, 1]}"
    assert len(read_plan(plan(tmp_path, text), tmp_path).configs) == 2


def test_every_problem_is_told_at_once_with_the_nearest_key(tmp_path: Path) -> None:
    text = "recipe: tiles\ngrid: {training.lrr: [1], model.dim: [0], attention.name: [sofmax]}"
    with pytest.raises(RequestError) as caught:
        read_plan(plan(tmp_path, text), tmp_path)
    message = str(caught.value)
    for part in (
        "plan.yaml",
        "did you mean 'training.lr'?",
        "dim = 0 should be greater than 0",
        "did you mean 'softmax'?",
    ):
        assert part in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("recpie: tiles", "did you mean 'recipe'?"),
        ("grid: {training.lr: [1]}", "the key 'recipe' is missing."),
        ("recipe: tyles", "did you mean 'tiles'?"),
        ("recipe: tiles\ngrid: [1, 2]", "'grid' must map config keys to lists of values."),
        ("recipe: tiles\nvariants: {a: b}", "'variants' must be a list of maps"),
        ("recipe: tiles\ngrid: {training.seed: 0}", "at least one seed is needed"),
        ("recipe: [", "is not YAML"),
        ("just a text", "holds no study"),
        ("", "holds no study"),
    ],
)
def test_a_mistake_in_the_file_is_one_sentence_with_its_name(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=r"plan\.yaml") as caught:
        read_plan(plan(tmp_path, text), tmp_path)
    assert sentence in str(caught.value)


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"cannot read .*: No such file or directory"):
        read_plan(tmp_path / "none.yaml", tmp_path)


def test_the_study_of_tiles_is_seven_arms_at_five_rates_with_six_seeds(tmp_path: Path) -> None:
    assert len(read_plan(ROOT / "results/tiles/study.yaml", tmp_path).configs) == 7 * 5 * 6
