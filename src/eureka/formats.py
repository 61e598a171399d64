"""Numbers and lists as people write them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

NONE = "–"


def count(value: float | None) -> str:
    """
    >>> count(1200), count(1312.5), count(None)
    ('1,200', '1,312.5', '–')
    """
    return NONE if value is None else f"{value:,.1f}".removesuffix(".0")


def percent(value: float | None, digits: int = 1) -> str:
    """
    >>> print(percent(0.9814), percent(0.55), percent(1.0))
    98.1 % 55 % 100 %
    """
    return NONE if value is None else f"{100 * value:.{digits}f}".removesuffix(".0") + "\N{NO-BREAK SPACE}%"


def rate(value: float) -> str:
    """A learning rate.

    >>> rate(0.0003), rate(0.00025), rate(0.01), rate(0.5)
    ('3e-4', '2.5e-4', '1e-2', '0.5')
    """
    if value >= 0.1:
        return f"{value:g}"
    mantissa, exponent = f"{value:e}".split("e")
    return f"{float(mantissa):g}e{int(exponent)}"


def number(value: float) -> str:
    """A loss.

    >>> number(0.623832), number(2.30259), number(0.0), number(0.00123)
    ('0.624', '2.3', '0', '0.00123')
    """
    return f"{value:.3g}"


def fixed(value: float | None, digits: int = 3) -> str:
    """With the same number of decimals for all, as in a column.

    >>> fixed(0.55), fixed(1312.4, 0), fixed(None)
    ('0.550', '1,312', '–')
    """
    return NONE if value is None else f"{value:,.{digits}f}"


def measurement(value: float) -> str:
    """A measured value of any size, as in a column.

    >>> measurement(0.5), measurement(12.3456), measurement(0.0000421), measurement(float("nan"))
    ('0.500', '12.346', '4.2e-05', '–')
    """
    if value != value:
        return NONE
    return f"{value:.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def span(values: Sequence[float]) -> str:
    """Measured values from the least to the greatest.

    >>> span([0.5, 1.0, 0.25]), span([1.0, 1.0])
    ('0.250 to 1.000', '1.000')
    """
    low, high = measurement(min(values)), measurement(max(values))
    return low if low == high else f"{low} to {high}"


def step(value: float) -> str:
    """A training step; steps can be fractions, such as epochs.

    >>> step(5_999_849.3), step(84.25), step(0.01234567)
    ('5,999,849', '84.25', '0.01235')
    """
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """A length of time, as far as an estimate goes.

    >>> duration(0.4), duration(48), duration(540), duration(5400), duration(36000)
    ('1 s', '48 s', '9 min', '1.5 h', '10 h')
    """
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    return f"{math.ceil(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f}".removesuffix(".0") + " h"


def setting(value: Any) -> str:
    """A value as it is typed after ``--set KEY=``.

    >>> setting("cosine"), setting(True), setting([4, 8]), setting("1")
    ('cosine', 'true', '[4, 8]', '"1"')
    """
    if isinstance(value, str) and not _is_json(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def plural(n: int, one: str, many: str | None = None) -> str:
    """
    >>> plural(1, "run"), plural(1200, "run")
    ('1 run', '1,200 runs')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def listing(parts: Sequence[str]) -> str:
    """
    >>> listing(["a"]), listing(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def few(parts: Sequence[str], most: int = 3) -> str:
    """The first of many.

    >>> few(["a", "b"]), few(["a", "b", "c", "d"])
    ('a and b', 'a, b and c, …')
    """
    return listing(parts[:most]) + (", …" if len(parts) > most else "")
