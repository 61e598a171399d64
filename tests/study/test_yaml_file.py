"""Files of studies that are hostile or mistaken: one sentence, at once, in little memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eureka.errors import RequestError
from eureka.study.plan import read_plans
from eureka.study.yaml_file import read_yaml

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
REFUSED = {
    "a billion values": (LAUGHS, "holds more than 100,000 values once its aliases are written out"),
    "itself": ("recipe: &a [*a]\n", "nested deeper than 50 levels"),
    "deep": ("[" * 5000, "nested deeper than 50 levels"),
    "a tag": ("recipe: !!python/object/apply:os.system [id]\n", "is not YAML"),
    "two documents": ("a: 1\n---\nb: 2\n", "is not YAML"),
    "a number of 5,000 digits": (f"recipe: tiles\nset: {{training.seed: {'9' * 5000}}}\n", "4300 digits"),
    "a date": ("recipe: tiles\nset: {training.lr: 2020-01-01}\n", "lr = '2020-01-01' should be a valid number"),
    "a key that is a number": ("recipe: tiles\n3: 4\n", "unknown key of a study '3'"),
    "a key that is nothing": ("recipe: tiles\ngrid: {~: [1]}\n", "the keys of 'grid' must be config keys"),
    "variants by number": ("recipe: tiles\nvariants: [{1: 2}]\n", "'variants' must be a list of maps"),
    "ten million runs": ("recipe: tiles\ngrid: {training.seed: 10000000}\n", "a study of 10,000,000 runs, more than 10,000"),
    "a number of runs without end": (f"recipe: tiles\ngrid: {{training.seed: {10**40}}}\n", "allow so many with --max-runs"),
    "a seed above 2⁶³": (f"recipe: tiles\nset: {{training.seed: {2**63}}}\n", "seed = 9223372036854775808 should be less"),
    "a million threads": ("recipe: tiles\nset: {training.threads: 1000000}\n", "threads = 1000000 should be less"),
    "a million blocks": ("recipe: tiles\nset: {model.depth: 1000000}\n", "depth = 1000000 should be less"),
    "a key twice": (
        "recipe: tiles\nset: {}\nrecipe: digits\n",
        "study.yaml: the key 'recipe' is there again in line 3; leave out one.",
    ),
    "a key twice, once in quotes": (
        "recipe: tiles\nvariants:\n- {training.lr: 1, 'training.lr': 2}\n",
        "the key 'training.lr' is there again in line 3",
    ),
    "nothing": ("", "holds no study"),
    "too large": ("#" * 1_000_001, "larger than 1,000,000 bytes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_a_sentence(tmp_path: Path, case: str) -> None:
    text, told = REFUSED[case]
    file = tmp_path / "study.yaml"
    file.write_text(text)
    with pytest.raises(RequestError) as refused:
        read_plans(file, tmp_path / "runs")
    assert told in str(refused.value)
    assert not (tmp_path / "runs").exists()


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, told in ((tmp_path / "pipe", "no regular file"), (tmp_path, "a folder"), (Path("/dev/zero"), "no regular file")):
        with pytest.raises(RequestError, match=told):
            read_yaml(path)


def test_aliases_that_people_write_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("recipe: tiles\nset: &same {training.steps: 300}\nvariants: [*same, {training.steps: 400}]\n")
    (study,) = read_plans(file, tmp_path / "runs")
    assert [config.training.steps for config in study.configs] == [300, 400]


def test_a_map_may_change_what_it_takes_from_others(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    maps = "[&a {training.steps: 300}, &b {model.dim: 32}, {<<: *a, <<: *b, training.steps: 400}]"
    file.write_text(f"recipe: tiles\nvariants: {maps}\n")
    (study,) = read_plans(file, tmp_path / "runs")
    assert [config.training.steps for config in study.configs] == [300, 1200, 400]


def test_more_runs_are_made_when_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text("recipe: tiles\ngrid: {training.seed: 3}\n")
    with pytest.raises(RequestError, match="a study of 3 runs, more than 2; allow so many with --max-runs 3"):
        read_plans(file, tmp_path, most=2)
    assert len(read_plans(file, tmp_path, most=3)[0].configs) == 3
