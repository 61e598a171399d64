"""`eureka fixes show` says what a fix computes and takes; settings of a fix can be typed beside its name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import eureka
from eureka.attention.registry import FIXES
from eureka.cli.compare import _study
from eureka.cli.fixes import fix_card, start_card
from eureka.errors import RequestError
from eureka.study.fix_choice import FixChoice, parse_fixes

OWN = """
from eureka import Operator
from eureka.attention.operator import SoftmaxFamily

class Sharp(SoftmaxFamily):
    '''softmax(gain·q·k).

    More words.
    '''

    def __init__(self, *, gain: float = 2.0) -> None:
        super().__init__()
        self.gain = gain

    def beta(self, q, k, mask):
        return self.gain
"""


def command(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "eureka", *arguments], cwd=cwd, capture_output=True, text=True, timeout=120)


def test_show_prints_formula_settings_with_defaults_source_and_use(tmp_path: Path) -> None:
    done = command("fixes", "show", "heat_treatment", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = " ".join(done.stdout.split())
    assert "heat_treatment: a temperature that rises from 1/3 to √d over the first half of training" in told
    assert "β = 1/τ(step), where τ rises from `start` to `end` (√d unless given) along a cosine" in told
    assert "share 0.5 float > 0 ≤ 1" in told
    assert "end null float > 0 or null" in told
    assert "Source: Hoffmann et al. 2024" in told
    assert "eureka compare tiles --fix softmax,heat_treatment:start=" in told


@pytest.mark.parametrize("name", FIXES.names())
def test_every_fix_has_a_card_whose_lines_work(name: str) -> None:
    import torch

    card = fix_card(name)
    assert card.formula
    assert card.source
    assert {one.name for one in card.settings} == set(FIXES.schema(name).model_fields)
    line, code = card.use
    for choice in parse_fixes(line.split("--fix ")[1]):
        FIXES.choose(choice.name, choice.settings)
    model = torch.nn.TransformerEncoderLayer(16, nhead=2, batch_first=True)
    exec(code, {"eureka": eureka, "model": model})
    model(torch.randn(2, 4, 16))


def test_a_fix_of_ones_own_can_be_shown(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    done = command("fixes", "show", "mine:Sharp", "--json", cwd=tmp_path)
    card = json.loads(done.stdout)
    assert card["formula"] == "softmax(gain·q·k)."
    assert card["settings"] == [{"name": "gain", "default": 2.0, "kind": "float"}]


def test_settings_that_the_name_fixes_are_told_as_such() -> None:
    [statistic, _] = fix_card("norm_softmax_var").settings
    assert (statistic.name, statistic.default, statistic.kind) == ("statistic", "var", "fixed by the name")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("softmax", [FixChoice("softmax")]),
        ("temperature:temperature=0.2,norm_softmax", [FixChoice("temperature", {"temperature": 0.2}), FixChoice("norm_softmax")]),
        ("heat_treatment:start=0.5,share=0.2", [FixChoice("heat_treatment", {"start": 0.5, "share": 0.2})]),
        (" a , a ,b:x=1, b:x=1,b:x=2", [FixChoice("a"), FixChoice("b", {"x": 1}), FixChoice("b", {"x": 2})]),
        ("my.module:Class", [FixChoice("my.module:Class")]),
        ("my.module:Class:cap=null", [FixChoice("my.module:Class", {"cap": None})]),
    ],
)
def test_fixes_are_read_with_their_settings(text: str, expected: list[FixChoice]) -> None:
    assert parse_fixes(text) == expected
    assert parse_fixes(",".join(map(str, expected))) == expected


@pytest.mark.parametrize("text", ["", ",", "gain=2", "softmax:=2", "temperature:temperature="])
def test_what_is_no_fix_is_one_sentence(text: str) -> None:
    with pytest.raises(RequestError, match="--fix"):
        parse_fixes(text)


def test_compare_makes_an_arm_of_each_choice(tmp_path: Path) -> None:
    fixes = "softmax,temperature:temperature=0.2,temperature:temperature=0.5"
    study = _study("tiles", fixes, "paper,clear", 2, "1e-3", tmp_path, [], None)
    found = [(c.attention.values().get("temperature"), c.training.seed) for c in study.configs]
    assert len(study.configs) == 12
    assert sorted(found, key=str) == sorted([(t, s) for t in (None, 0.2, 0.5) for s in (0, 1)] * 2, key=str)


def test_a_run_takes_a_fix_with_settings(tmp_path: Path) -> None:
    small = ["training.steps=4", "training.warmup=1", "training.batch_size=8", "training.validation_samples=8", "model.dim=16"]
    sets = [word for change in small for word in ("--set", change)]
    done = command("run", "tiles", "--fix", "temperature:temperature=0.2", *sets, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["config"]["attention"] == {"name": "temperature", "temperature": 0.2}


@pytest.mark.parametrize(
    ("name", "call"), [("clear", "positions=1.0, logits=1.0"), ("clear_positions", "positions=1.0, logits=None")]
)
def test_show_explains_a_start_as_it_does_a_fix(tmp_path: Path, name: str, call: str) -> None:
    done = command("fixes", "show", name, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name}: learned positions as large as the content")
    assert f"eureka compare tiles --start paper,{name}\n  eureka.clear_start(model, inputs, {call})" in done.stdout


def test_a_start_that_changes_nothing_has_no_call(tmp_path: Path) -> None:
    card = start_card("paper")
    assert card is not None
    assert card.use == ["eureka compare tiles --start paper"]
    assert start_card("softmax") is None
