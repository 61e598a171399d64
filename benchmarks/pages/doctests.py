"""For mkdocstrings: examples of a docstring become its section `Examples:`, which is shown as code."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Doctests(griffe.Extension):
    """Reads every docstring before mkdocstrings does."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Mark the examples of an object's docstring."""
        if obj.docstring is not None:
            obj.docstring.value = with_examples(obj.docstring.value)


def with_examples(text: str) -> str:
    """A docstring whose examples are under a heading; a section may stand before them and after them.

    >>> with_examples("Add.\\n\\n>>> 1 + 1\\n2")
    'Add.\\n\\nExamples:\\n    >>> 1 + 1\\n    2'
    """

    def section(match: re.Match[str]) -> str:
        return "Examples:\n" + "\n".join(f"    {line}" if line else line for line in match[0].split("\n"))

    return re.sub(r"^>>> .*(?:\n.+)*", section, text, flags=re.MULTILINE)
