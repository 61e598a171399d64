"""What a reader can choose: one of a few, side by side, or one of many, from a list."""

from __future__ import annotations

from collections.abc import Sequence

from eureka.report.markup import Html, tag


def segments(name: str, legend: str, options: Sequence[str]) -> Html:
    """The first option stands for no choice and has an empty value; the others are numbered from 0."""
    choices = (_choice(name, "" if i == 0 else str(i - 1), option) for i, option in enumerate(options))
    return tag("fieldset", tag("legend", legend), *choices, class_="segments")


def _choice(name: str, value: str, label: str) -> Html:
    return tag("label", _input(type="radio", name=name, value=value, checked=not value), tag("span", label))


def dropdown(identity: str, label: str, options: Sequence[str]) -> Html:
    """A list to choose from; nothing to choose from one."""
    items = (tag("option", option, value=str(i)) for i, option in enumerate(options))
    chosen = tag("select", *items, id=identity)
    return tag("label", tag("span", label), chosen, class_="choice", hidden=len(options) < 2)


def slider(identity: str, label: str, output: str) -> Html:
    """A slider, and where the page says what it stands at."""
    place = _input(type="range", id=identity, min="0", max="0", value="0", step="1")
    return tag("label", tag("span", label), place, tag("output", "", id=output, for_=identity), class_="choice slider")


def _input(**attributes: str | bool) -> Html:
    return Html(tag("input", **attributes).removesuffix("</input>"))
