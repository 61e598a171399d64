"""Names, settings and the sentences people get when they are wrong."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from eureka.errors import MissingExtraError, RequestError, UnknownNameError
from eureka.registry import Entry, Registry


class Kettle:
    def __init__(
        self, volts: int = 230, *, litres: Annotated[float, Field(gt=0)] = 1.5, colour: Literal["red", "blue"] = "red"
    ) -> None:
        self.volts, self.litres, self.colour = volts, litres, colour


KETTLES: Registry[Kettle] = Registry(
    "kettle",
    [
        Entry(name="plain", target=f"{__name__}:Kettle", summary="a kettle"),
        Entry(name="blue_one", target=f"{__name__}:Kettle", summary="a blue kettle", preset={"colour": "blue"}),
    ],
)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(
        sys.modules, __name__, sys.modules.get(__name__) or __import__("types").SimpleNamespace(Kettle=Kettle, Teapot=Teapot)
    )


def test_defaults_are_filled_in_and_texts_become_numbers() -> None:
    chosen = KETTLES.choose("plain", {"litres": "2"})
    assert chosen.values() == {"name": "plain", "litres": 2.0, "colour": "red"}
    assert chosen.chosen() == {"name": "plain", "litres": 2.0}


def test_context_reaches_only_constructors_that_ask_for_it() -> None:
    kettle = KETTLES.build("plain", {"litres": 3}, volts=110, amperes=13)
    assert (kettle.volts, kettle.litres) == (110, 3.0)


class Teapot:
    def __init__(self, cups: int, *, settings: TeapotSettings) -> None:
        self.cups, self.settings = cups, settings


class TeapotSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    lid: bool = True
    handles: PositiveInt


def test_a_class_may_take_its_settings_as_one_model() -> None:
    teapots: Registry[Teapot] = Registry("teapot", [Entry(name="round", target=f"{__name__}:Teapot", summary="")])
    teapot = teapots.build("round", {"handles": 1}, cups=4)
    assert (teapot.cups, teapot.settings) == (4, TeapotSettings(handles=1))
    with pytest.raises(RequestError, match=r"teapot 'round': handles = 0 should be greater than 0"):
        teapots.choose("round", {"handles": 0})


def test_a_setting_without_a_default_must_be_given() -> None:
    teapots: Registry[Teapot] = Registry("teapot", [Entry(name="round", target=f"{__name__}:Teapot", summary="")])
    with pytest.raises(RequestError, match=r"^teapot 'round': handles is missing; give it a value\.$"):
        teapots.choose("round")


def test_a_preset_decides_its_setting() -> None:
    assert KETTLES.build("blue_one").colour == "blue"
    with pytest.raises(RequestError, match=r"kettle 'blue_one' means colour='blue'; it cannot be 'red'\."):
        KETTLES.choose("blue_one", {"colour": "red"})


def test_an_unknown_name_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"^unknown kettle 'plane'; did you mean 'plain'\? Known: blue_one, plain\.$"):
        KETTLES.entry("plane")


def test_an_unknown_setting_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown setting of kettle 'plain' 'liters'; did you mean 'litres'\?"):
        KETTLES.choose("plain", {"liters": 1})


def test_every_wrong_value_is_told_at_once() -> None:
    with pytest.raises(RequestError) as caught:
        KETTLES.choose("plain", {"litres": -1, "colour": "green"})
    assert str(caught.value) == (
        "kettle 'plain': litres = -1 should be greater than 0; colour = 'green' should be 'red' or 'blue'."
    )


def test_a_missing_extra_says_how_to_install_it() -> None:
    assert (
        str(MissingExtraError("transformers", "hf")) == "this needs the package 'transformers': pip install 'eureka-moments[hf]'"
    )
