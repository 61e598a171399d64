"""A function of the user's gives a case; what it does wrong is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from eureka.errors import RequestError
from eureka.forks.loading import load_case

SOURCE = """
from torch import nn, optim

model = nn.Linear(2, 1)
number = 3

def case():
    return {"model": model, "batches": [1, 2], "loss": len, "optimizer": optim.SGD(model.parameters(), lr=0.1)}

def misspelt():
    return {"model": model, "batches": [], "los": len}

def poor():
    return {"loss": len}

def broken():
    raise KeyError("data")

def nothing():
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loaded_case.py").write_text(SOURCE)
    monkeypatch.setenv("EUREKA_FOLDER", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "loaded_case", raising=False)


def test_the_function_gives_the_case() -> None:
    given = load_case("loaded_case:case")
    assert type(given.model).__name__ == "Linear"
    assert given.batches == [1, 2]
    assert given.step is None


MISTAKES = {
    "loaded_case:cas": r"unknown function in .*loaded_case.py 'cas'; did you mean 'case'\?",
    "loaded_case:misspelt": r"unknown key in what loaded_case:misspelt\(\) returns 'los'; did you mean 'loss'\?",
    "loaded_case:poor": r"what loaded_case:poor\(\) returns has no model and no batches\.",
    "loaded_case:broken": r"loaded_case:broken\(\) failed in line 17 of loaded_case.py with KeyError: 'data'",
    "loaded_case:nothing": r"loaded_case:nothing\(\) returns a NoneType; it must return a dict with model, batches",
    "loaded_case:number": r"loaded_case:number is a int; name a function that returns a dict\.",
    "loaded_case:": r"loaded_case:: expected module:function, as in my_package\.my_module:my_case\.",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_is_one_sentence(text: str) -> None:
    with pytest.raises(RequestError, match=MISTAKES[text]):
        load_case(text)
