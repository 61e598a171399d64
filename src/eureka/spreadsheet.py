"""CSV that people open in a spreadsheet: a text that would be read as a formula is marked as text."""

from __future__ import annotations

import contextlib
import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

FORMULA = ("=", "+", "-", "@", "\t")
"""How a cell begins that a spreadsheet would compute."""
MARK = "'"
"""What marks a cell as text."""


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A table with a header; numbers stay numbers.

    >>> write_csv(["name", "value"], [{"name": "=1+1", "value": -0.5}])
    "name,value\\n'=1+1,-0.5\\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_safe, columns))
    writer.writerows([_safe(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()


def _safe(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    with contextlib.suppress(ValueError):
        float(value)
        return value
    return f"{MARK}{value}"


def plain(cell: str) -> str:
    """A cell as it was before it was marked.

    >>> plain("'=1+1"), plain("-0.5"), plain("'quoted'")
    ('=1+1', '-0.5', "'quoted'")
    """
    return cell[1:] if cell.startswith(MARK) and cell[1:].startswith(FORMULA) else cell
