"""How a table is written: its delimiter, its header, what commas mean, and where its rows begin."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

from eureka.curves.readers.columns import INDEX, tells
from eureka.curves.readers.numbers import Comma, comma_of, looks_numeric, number
from eureka.errors import RequestError

DELIMITERS = (",", "\t", ";", "|", " ")
LOOKED_AT = 200
"""Lines by which the layout is found."""
WHOLE = 1 << 16
"""A head of fewer bytes is the whole file."""
KINDS = 20
"""Different texts in a column without a known name that may still tell rows apart."""
GAPS = ("", "nan", "none", "null", "n/a", "na", "-", "inf", "-inf")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
RULES = " \t,;|:=+-─━═┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋┡┩╇╞╪╡╔╗╚╝╠╣╦╩╬"
"""What lines between rows are made of."""
BARS = str.maketrans("│┃║┆", "||||")
"""The bars of drawn tables."""


@dataclass(frozen=True)
class Layout:
    """How a file is written."""

    delimiter: str
    names: tuple[str, ...]
    has_header: bool
    skipped: int
    """Lines before the first row of numbers."""
    start: int
    """Bytes before it."""
    preamble: int = 0
    """The last line that is not part of the table, if it is not the first."""
    labels: tuple[int, ...] = ()
    """The places of columns of text that tell rows apart."""
    comma: Comma = "none"

    def split(self, lines: Sequence[str]) -> list[list[str]]:
        return split(lines, self.delimiter)


def find_layout(path: Path, head: bytes) -> Layout:
    """Delimiter, header, and what commas mean, from the first lines."""
    lines = _numbered_lines(head)
    if not lines:
        raise RequestError(f"{path}: is empty.")
    delimiter, rows = _best_delimiter([line for _, line in lines])
    width = _width(rows)
    first = next((i for i, row in enumerate(rows) if _is_data(row, width)), 0)
    data = [row for row in rows[first:] if len(row) == width]
    header = _header([line for _, line in lines], rows, first, width) or _comment(head, lines[first][0], delimiter, width)
    before = first - (header is not None)
    preamble = lines[before - 1][0] + 1 if before > 0 else 0
    names = tuple(_unique(header)) if header is not None else tuple(f"column {i + 1}" for i in range(width))
    columns = list(zip(*data, strict=True))
    comma = comma_of([column for column in columns if any(looks_numeric(field) for field in column)]) if columns else "none"
    if comma is None and delimiter == ";":
        comma = "decimal"  # why else would it not be a comma that separates fields
    if comma is None:
        raise RequestError(either(path, columns))
    labels = tuple(i for i, column in enumerate(columns) if _tells(names[i], column, header is not None))
    return Layout(delimiter, names, header is not None, lines[first][0], _start(head, lines[first][0]), preamble, labels, comma)


def is_table(head: bytes, says_metrics: bool) -> bool:
    """Whether most lines, from some line on, have the same number of fields, and numbers among them.

    Lines that name a metric beside its number (`says_metrics`), and lines between spaces without a header, are a table only if
    they are bare words and numbers: ``100 train_loss 2.3`` and ``train_loss 100 2.3``, but not ``100: loss 2.3``.
    """
    lines = _lines(head)
    if not lines:
        return False
    delimiter, rows = _best_delimiter(lines)
    if says_metrics:
        delimiter, rows = " ", split(lines, " ")
    width = _width(rows)
    first = next((i for i, row in enumerate(rows) if _is_data(row, width)), len(rows))
    data = [row for row in rows[first:] if _is_data(row, width)]
    if len(data) < max(1.0, 0.5 * (len(rows) - first)):
        return False
    if says_metrics or (delimiter == " " and _header(lines, rows, first, width) is None):
        return len(data) > 0.8 * len(rows) and all(_is_bare(row) for row in data)
    return True


def _is_bare(row: list[str]) -> bool:
    numbers = [looks_numeric(field) for field in row]
    words = all(number or re.fullmatch(r"[A-Za-z][\w/.-]*", field) for field, number in zip(row, numbers, strict=True))
    return words and (numbers[0] or len(row) == 1 or any(a and b for a, b in pairwise(numbers)))


def plain(text: str) -> str:
    """A text without colours, and with the bars of drawn tables as plain ones."""
    return COLOURS.sub("", text).translate(BARS) if not text.isascii() or "\x1b" in text else text


def split(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The fields of lines."""
    if delimiter == " ":
        return [line.split() for line in lines]
    return [[field.strip() for field in (_quoted(line, delimiter) if '"' in line else line.split(delimiter))] for line in lines]


def _quoted(line: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a field too long for any table
        return [line]


def _lines(head: bytes) -> list[str]:
    """The first lines, without comments and gaps."""
    return [line for _, line in _numbered_lines(head)]


def _numbered_lines(head: bytes) -> list[tuple[int, str]]:
    text = _all_lines(head)
    if len(text) > 1 and len(head) >= WHOLE:
        text.pop()  # cut short
    full = ((i, line) for i, line in enumerate(text) if line.strip(RULES) and not _is_comment(line))
    return list(islice(full, LOOKED_AT))


def _all_lines(head: bytes) -> list[str]:
    return plain(head.decode("utf-8-sig", errors="replace")).replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _is_comment(line: str) -> bool:
    """``# made by hand``; a header may call its first column ``#``, too."""
    return line.lstrip().startswith("#")


def _comment(head: bytes, first: int, delimiter: str, width: int) -> list[str] | None:
    """The names in a comment just before the numbers, as `numpy.savetxt` and gnuplot have them."""
    above = next((line for line in reversed(_all_lines(head)[:first]) if line.strip(RULES)), "")
    if not _is_comment(above):
        return None
    names = split([above.lstrip(" #\t")], delimiter)[0]
    return names if len(names) == width and not any(map(looks_numeric, names)) else None


def _start(head: bytes, line: int) -> int:
    """The place of a line, whichever characters end lines."""
    return 0 if line == 0 else next(islice(re.finditer(rb"\r\n|\r|\n", head), line - 1, None)).end()


def _best_delimiter(lines: list[str]) -> tuple[str, list[list[str]]]:
    """The delimiter under which most fields are numbers and fewest are not, in lines with the same number of fields."""
    best, chosen = (0, 0), (",", [[line.strip()] for line in lines])
    for delimiter in DELIMITERS:
        rows = split(lines, delimiter)
        width = _width(rows)
        full = [row for row in rows if len(row) == width and any(map(looks_numeric, row))]
        fields = [field for row in full for field in row if field]
        numbers = sum(map(looks_numeric, fields))
        if width > 1 and (numbers, numbers - len(fields)) > best:
            best, chosen = (numbers, numbers - len(fields)), (delimiter, rows)
    return chosen


def _width(rows: list[list[str]]) -> int:
    """The usual number of fields of rows that hold a number."""
    counts = Counter(len(row) for row in rows if any(map(looks_numeric, row)))
    return counts.most_common(1)[0][0] if counts else len(rows[0])


def _is_data(row: list[str], width: int) -> bool:
    return len(row) == width and any(map(looks_numeric, row)) and not all(field.lower() in GAPS for field in row)


def _header(lines: list[str], rows: list[list[str]], first: int, width: int) -> list[str] | None:
    """The line before the numbers, if it can name their columns; it may lack the name of the first (R), or of an empty last.

    Names of several words stand further apart than their words do.
    """
    heads = rows[:first]
    if first and len(heads[-1]) != width:
        apart = re.split(r"\s{2,}|\t", lines[first - 1].strip())
        heads = [*heads, apart] if len(apart) == width else heads
    names = next((row for row in reversed(heads) if len(row) in (width, width - 1) and any(row)), None)
    if names is None or any(number(name) == number(name) for name in names if name):
        return None
    if len(names) == width:
        return names
    data = [row for row in rows[first:] if len(row) == width]
    if not any(row[-1] for row in data):
        return [*names, ""]
    places = [number(row[0]) for row in data]
    numbered = all(place != place for place in places) or all(b == a + 1 for a, b in pairwise(places))
    return ["", *names] if numbered and width > 2 else None


def _unique(names: Sequence[str]) -> list[str]:
    seen: Counter[str] = Counter()
    out = []
    for i, name in enumerate(names):
        name = name or (INDEX if i == 0 else f"column {i + 1}")
        seen[name] += 1
        out.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return out


def _tells(name: str, column: Sequence[str], named: bool) -> bool:
    """Whether a column of text may tell runs, splits or metrics apart: by its name, or because it has few different texts."""
    texts = [field for field in column if field.lower() not in GAPS]
    if not texts or sum(map(looks_numeric, texts)) > 0.2 * len(texts):
        return False
    return (named and tells(name)) or 1 < len(set(texts)) <= min(KINDS, len(texts) // 2)


def either(path: Path, columns: Sequence[Sequence[str]]) -> str:
    field = next((field for column in columns for field in column if "," in field), "1,000")
    return f"{path}: numbers such as {field!r} may have thousands or decimals; write them without commas."
