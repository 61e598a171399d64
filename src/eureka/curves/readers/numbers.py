"""Numbers as logs write them: 1e-3, 1.5D+02, 1,000, 2,31 where the comma is the decimal point, 10k, 93 %, nan."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

Comma = Literal["none", "thousands", "decimal"]
"""What a comma inside a number means in a file."""

NAN = float("nan")
"""A gap."""
BROKEN = float("inf")
"""What is there and is no number: nan, inf, or beyond the largest."""
LARGEST = 1e307
"""The distance of two numbers beyond it is no number."""
SUFFIXES = {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "%": 1.0}
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?")
DECIMAL = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(\.\d{3})+),\d+([eE][-+]?\d+)?")
DOTTED = re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")
"""1.000 or 1.000.000, which are whole numbers where the comma is the decimal point."""
FRACTION = re.compile(r"(\d+)\s*/\s*\d+")
"""12/300 counts 12."""
POINT = re.compile(r"[-+]?(\d*\.\d+|\d+\.\d*)([eE][-+]?\d+)?")
FORTRAN = re.compile(r"([-+]?\d*\.?\d+)[dD]([-+]?\d+)")
"""1.5D+02 is 150."""
WRAPPED = re.compile(r"(?:tensor|np\.float\d*|array)\((.*?)(?:,\s*(?:device|dtype|grad_fn)=.*)?\)")


def number(value: Any, comma: Comma = "none") -> float:
    """A field as a float; infinity if it says that it is no number, NaN if it says nothing.

    >>> number("1e-3"), number(True), number(None), number("n/a"), number("10k"), number("93 %"), number("12/300")
    (0.001, nan, nan, nan, 10000.0, 93.0, 12.0)
    >>> number("nan"), number("-inf"), number(float("nan")), number("1e400"), number("tensor(nan)"), number("")
    (inf, inf, inf, inf, inf, nan)
    >>> number("1.5D+02"), number("3d")
    (150.0, nan)
    >>> number("1,000", "thousands"), number("2,31", "decimal"), number("1.000,5", "decimal"), number("1,000")
    (1000.0, 2.31, 1000.5, nan)
    """
    if isinstance(value, bool) or value is None:
        return NAN
    try:
        plain = float(value) if comma != "decimal" or not isinstance(value, str) or "." not in value else None
    except (TypeError, ValueError, OverflowError):
        plain = None
    if plain is None:
        return _written(value.strip(), comma) if isinstance(value, str) else NAN
    return plain if abs(plain) < LARGEST else BROKEN


def _written(text: str, comma: Comma) -> float:
    """A number with separators, a suffix or something around it."""
    if not text or len(text) > 60 or not (any(character.isdigit() for character in text) or WRAPPED.fullmatch(text)):
        return NAN
    scale, counted = 1.0, FRACTION.fullmatch(text)
    if counted is not None:
        return float(counted[1])
    if text[-1] in SUFFIXES:
        text, scale = text[:-1].rstrip(), SUFFIXES[text[-1]]
    wrapped = WRAPPED.fullmatch(text)
    text = (wrapped[1] if wrapped else text).replace("\u00a0", "").replace("\u202f", "").replace("'", "").replace("\u2212", "-")
    if comma == "decimal":
        text = (text.replace(".", "") if DOTTED.fullmatch(text.partition(",")[0]) else text).replace(",", ".")
    elif comma == "thousands" and THOUSANDS.fullmatch(text):
        text = text.replace(",", "")
    double = FORTRAN.fullmatch(text)
    text = f"{double[1]}e{double[2]}" if double is not None else text
    try:
        real = float(text) * scale
    except ValueError:
        return NAN
    return real if abs(real) < LARGEST else BROKEN


def looks_numeric(text: str) -> bool:
    """Whether a field is a number under some reading, or a gap where one would be.

    >>> [looks_numeric(text) for text in ("2.5", "2,5", "1,000", "", "nan", "loss", "3 apples")]
    [True, True, True, False, True, False, False]
    """
    text = text.strip()
    return text.lower() in ("nan", "inf", "-inf") or number(text, "thousands") == number(text, "thousands") or _has_comma(text)


def _has_comma(text: str) -> bool:
    return DECIMAL.fullmatch(text) is not None


def comma_of(columns: Iterable[Iterable[str]]) -> Comma | None:
    """What the comma means in a file, by the fields of its columns; None if both readings are possible.

    ``2,31`` and ``0,693`` have decimals; ``1,234,567`` and ``1,000`` beside ``900`` or ``2.5`` have thousands.

    >>> comma_of([["10", "20"], ["2,314", "0,693"]]), comma_of([["900", "1,000"], ["2.5", "2.4"]]), comma_of([["1,000", "2,000"]])
    ('decimal', 'thousands', None)
    """
    fields = [[field.strip() for field in column] for column in columns]
    with_comma = [[field for field in column if DECIMAL.fullmatch(field) or THOUSANDS.fullmatch(field)] for column in fields]
    if not any("," in field for column in with_comma for field in column):
        return "none"
    if any(DECIMAL.fullmatch(field) and not THOUSANDS.fullmatch(field) for column in with_comma for field in column):
        return "decimal"
    if any(POINT.fullmatch(field) and not DOTTED.fullmatch(field) for column in fields for field in column):
        return "thousands"
    grouped = [column for column in with_comma if column]
    if any(field.count(",") > 1 for column in grouped for field in column):
        return "thousands"
    plain = [column for column, found in zip(fields, with_comma, strict=True) if found]
    mixed = all(any(re.fullmatch(r"[-+]?\d{1,3}", field) for field in column) for column in plain)
    return "thousands" if mixed else None
