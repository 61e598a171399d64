"""A fix with settings of its own, as people type it: ``temperature:temperature=0.2``. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from eureka.errors import RequestError
from eureka.formats import setting


@dataclass(frozen=True)
class FixChoice:
    """The name of a fix, and its settings that are not left as they are."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def changes(self) -> dict[str, Any]:
        """The config keys that this choice sets."""
        return {"attention.name": self.name} | {f"attention.{key}": value for key, value in self.settings.items()}

    def __str__(self) -> str:
        told = ",".join(f"{key}={setting(value)}" for key, value in self.settings.items())
        return f"{self.name}:{told}" if told else self.name


def parse_fixes(text: str) -> list[FixChoice]:
    """The distinct fixes that a text names, in order.

    Commas stand between fixes, and between the settings of one: what is no fix but a setting belongs to the fix before it.

    >>> [str(fix) for fix in parse_fixes("softmax,temperature:temperature=0.2,norm_softmax")]
    ['softmax', 'temperature:temperature=0.2', 'norm_softmax']
    >>> parse_fixes("my_module:MyFix:gain=2,mode=soft")
    [FixChoice(name='my_module:MyFix', settings={'gain': 2, 'mode': 'soft'})]
    """
    chosen: list[tuple[str, dict[str, Any]]] = []
    for part in filter(None, map(str.strip, text.split(","))):
        before, equals, value = part.partition("=")
        if not equals:
            chosen.append((part, {}))
            continue
        name, _, key = (piece.strip() for piece in before.rpartition(":"))
        if name:
            chosen.append((name, {}))
        if not chosen or not key or not value.strip():
            raise RequestError(f"--fix {part}: expected a fix, or FIX:KEY=VALUE as in temperature:temperature=0.2.")
        chosen[-1][1][key] = _value(value.strip())
    if not chosen:
        raise RequestError("--fix names nothing; give one fix or several with commas between them.")
    return list({json.dumps(one): FixChoice(*one) for one in chosen}.values())


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
