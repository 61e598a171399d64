"""Plain text logs of any program, by one rule: a number belongs to the words before it.

``iter 100: loss 3.2, time 12ms``, ``{'loss': 3.2, 'epoch': 0.5}`` and ``step:100/5100 val_loss:3.9`` are all words, a separator
and a number. Nine patterns are all that is looked for:

pair        loss: 3.2 · loss=3.2 · loss 3.2 · 'loss': '3.2' · lr=[1e-4] · step 10k
fraction    iteration 100/ 5000 · Epoch [1][ 50/312] · 10/100 [00:01<00:09]: a count and how many there are
after       Validation loss at iteration 1000: 2.34
before      100 steps · 100it [00:10, …]
start       [100] loss: 3.2 · 100: loss 3.2 · train.py:33] [100] loss=3.2, where nothing else counts
place       [2,  4000] loss: 1.8, as PyTorch's tutorial writes epoch and batch
cell        |  loss  | 3.2 |, a line of a table with one row a name, which as a whole is one record
behind      3.2 avg loss, where no number comes after the name
bare        epoch 3: 0.52 · 100/5000: 3.2 · 100: 3.2, a count and nothing but a number

A word for train or validation holds for what comes after it in its line, until the next: ``[train] loss=3.2, [valid] loss=3.4``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import IO

import numpy as np

from eureka.curves.readers.columns import (
    BATCH,
    INDEX,
    OF,
    TRAIN,
    UNNAMED,
    VALIDATION,
    is_aside,
    is_bare_role,
    is_epoch,
    is_metric,
    is_rate,
    is_rising,
    rank,
    role_of,
    words,
)
from eureka.curves.readers.counters import shape_of
from eureka.curves.readers.numbers import Comma, number
from eureka.curves.readers.table import Progress, Table, TableBuilder

BLOCK = 1 << 20
LONGEST = 4000
"""Characters of a line that are looked at."""
LINES = 3
"""Lines with a loss that make a text a log."""
OFTEN, MOST_UNREAD, MOST_COUNTED = 0.2, 40, 1000
"""Other numbers are offered if they are named in this share of the rows, so many names at most, of so many that are counted."""
BEGUN = 2000
"""Lines that show whether counters stand before metrics or behind them."""
LEVELS = {"info", "debug", "warning", "root", "main", "and", "the", "with", "a", "an"}
"""Words in front of a name that are not part of it."""
VERBS = {"is", "was", "equals"}
"""Words behind it that are not."""

NUMBER = (
    r"[-+]?(?:\d+(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+,\d+(?![\d.,])|\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?[kKMB%]?(?!\w|\.\d)"
    r"|[-+]?(?:nan|NaN|inf|Infinity|n/a)\b"
)
WORD = r"[A-Za-z_][\w./@+-]*+(?:'s(?= ))?"
BROKEN = r"(?:nan|NaN|inf|Infinity)\b(?!\s*[:=]?\s*[-+\d]| (?:norm|iter\w*|steps?|updates?|batch\w*|grad\w*|values?|count))"
"""A word that is the value of the one before it, as in ``loss nan``, and no part of a name, as in ``nan iterations: 0``."""
COUNTER = r"(?:global[_ ])?(?:steps?|iter(?:ation)?s?|epochs?|updates?|batch(?:es)?)"
PAIR = re.compile(
    rf"(?<![\w./])(?P<key>{WORD}(?: (?!{BROKEN}){WORD}){{0,5}}+)(?P<unit>[ ]?\([^()\d]{{1,24}}\))?"
    rf"(?:['\"]?\s*[:=]+\s*|\s+|(?=\[))(?:[\[('\"]\s*){{0,3}}(?:tensor\(|np\.float\d+\()?(?P<number>{NUMBER})"
    r"(?:\s*/\s*(?P<of>\d+)(?![\d/.]))?"
)
COUNT = r"(?:\d{1,3}(?:,\d{3})+|\d+)"
FRACTION = re.compile(rf"(?<![\d./:,-])(?P<count>{COUNT})\s*/\s*(?P<of>{COUNT})(?![\d/-]|:\d)(?:\s*\(\s*\d+%\))?")
AFTER = re.compile(rf"(?P<metric>.*\S)\s+(?P<word>at|after|for|in|on|of)(?:\s+(?P<counter>{COUNTER}))?", re.IGNORECASE)
VALUE = re.compile(rf"\s*(?P<counter>{COUNTER})?\)?\s*(?:[:=]|(?:is|was)\s)\s*(?P<number>{NUMBER})", re.IGNORECASE)
BEFORE = re.compile(
    rf"(?<![\w.,])(?P<number>\d[\d,]*[kKM]?)(?:\s*(?P<counter>{COUNTER})\b(?!/)|(?P<it>it)(?![\w/]))", re.IGNORECASE
)
START = re.compile(r"(?:\W{0,3}|.*?[\])]\s+\[)(?P<number>\d+)(?:[\]):|]+|\s)(?![-\d/])")
REMARK = re.compile(r"\s\((?:for|per|over|in|on|of) [^()\d]{1,40}\)")
"""``Training loss (for one batch) at step 100: 3.2``."""
BEGINS = re.compile(rf"\s+(?P<number>{NUMBER})|\s*:\s*(?P<after>{NUMBER})")
NAMED_BATCH = re.compile(r"\bbatch\b", re.IGNORECASE)
CELL = re.compile(rf"\s*\|\s*(?P<key>[^|\d][^|]*?)\s*\|\s*(?P<number>{NUMBER})\s*\|\s*")
BEHIND = re.compile(r"(?<![\w.])(?P<number>\d+\.\d+)\s+(?P<key>(?:[A-Za-z]+\s)?(?:loss|accuracy))\b(?!\s*[:=\w(])", re.IGNORECASE)
BARE = re.compile(rf"[\s:,;|=>\])-]*(?P<number>{NUMBER})\s*")
NUMBERED = re.compile(rf"\s*[\[(]?(?P<count>\d+)(?:[\]):]+\s*|,\s*(?=[^,]*\)\s*$))(?P<number>{NUMBER})\)?\s*")
PLACE = re.compile(r"\[\s*(?P<epoch>\d+),\s*(?P<batch>\d+)\]")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b\x0c\x0e-\x1f]")
ROLE = re.compile(
    rf"(?<![\w/.-])({'|'.join(sorted((TRAIN | VALIDATION) - {'vl', 'tel', 'tr', 'trl'}))})(?![\w/.-])", re.IGNORECASE
)
DECIMAL = re.compile(r"[:=\s](?:\d+,(?:\d{1,2}|\d{4,})|0,\d+)(?![\d.,])")
POINT = re.compile(r"\d\.\d")

Row = dict[str, float]


def is_text_log(head: bytes) -> bool:
    """Whether some lines name a loss or a metric and a number."""
    rows = [row for line in _lines_of(head.decode("utf-8", errors="replace")) if has_metric(row := parse_line(line))]
    return len(rows) >= LINES


def comma_of(text: str) -> Comma:
    """What a comma inside a number means: decimals where some number can only have those, and none has a point."""
    return "decimal" if DECIMAL.search(text) and not POINT.search(text) else "thousands"


def read_text(file: IO[bytes], wanted: Sequence[str] = (), progress: Progress | None = None) -> Table:
    """Every line with a loss or a metric as a row, with the counters that stand in it or before it."""
    rows, comma = _Rows(wanted), None
    for text in _blocks(file, progress):
        if comma is None:
            comma, rows.counts_after = comma_of(text), _counts_after(text)
        for line in _lines_of(text):
            rows.add(parse_line(line, comma, wanted, rows.others), line)
    return rows.finish()


class _Rows:
    """Puts the lines of a log together: a metric with the counters of its own line, of one before it, or of one behind it."""

    def __init__(self, wanted: Sequence[str]) -> None:
        self.counts_after = False
        self._wanted, self._builder = wanted, TableBuilder()
        self._counters, self._cells = Row(), Row()
        self._waiting: list[Row] = []
        self.others = Counter[str]()
        """How often other numbers were named."""

    def add(self, row: Row, line: str) -> None:
        if line.lstrip().startswith("|") and (CELL.fullmatch(line) or self._cells):
            self._cells |= row
            return
        if self._cells:
            cells, self._cells = self._cells, Row()
            self._take(cells, "")
        self._take(row, line)

    def _take(self, row: Row, line: str) -> None:
        unnamed = () if NAMED_BATCH.search(line) else (BATCH, BATCH + OF)  # the bar of an evaluation counts nothing else
        counts = {name: value for name, value in row.items() if rank(name) is not None and name not in unnamed}
        if has_metric(row) or any(name in row for name in self._wanted):
            if self.counts_after and not counts:
                self._waiting.append(row)
            else:
                self._keep(row)
        elif counts:
            for waiting in self._waiting:
                self._builder.add_record({**counts, **waiting})
            self._waiting.clear()
        self._counters |= counts

    def _keep(self, row: Row) -> None:
        before = {name: value for name, value in self._counters.items() if not _has_count(row, name)}
        self._builder.add_record({**before, **row})

    def finish(self) -> Table:
        self.add(Row(), "")
        for row in self._waiting:
            self._builder.add_record(row)
        table = _without_false_totals(self._builder.finish())
        often = max(LINES, OFTEN * table.rows)
        return replace(table, unread=tuple(name for name, count in self.others.items() if count >= often)[:MOST_UNREAD])


def _without_false_totals(table: Table) -> Table:
    """A total that restarts is none: ``Batch 3/140`` may be epoch 3, batch 140."""
    columns = dict(table.columns)
    for name in [name for name in columns if name + OF in columns and not any(map(is_epoch, columns))]:
        total = columns[name + OF]
        if shape_of(total[np.isfinite(total)]).shape == "restarts":
            columns["epoch"], columns[name] = columns[name], columns.pop(name + OF)
    return replace(table, columns=columns)


def _counts_after(text: str) -> bool:
    """Whether the counter stands on a line behind the metrics, as in ``loss 3.2``, ``step 100 done``, ``loss 3.1``, …"""
    groups: list[set[str]] = [set()]
    for line in islice(_lines_of(text), BEGUN):
        row = parse_line(line)
        counts = any(rank(name) is not None for name in row)
        if has_metric(row) and counts:
            return False
        if has_metric(row):
            groups[-1] |= {name for name in row if is_metric(name)}
        elif counts:
            groups.append(set())
        if len(groups) > 2:
            return bool(groups[0]) and groups[0] == groups[1]
    return False


def _has_count(row: Row, name: str) -> bool:
    """Whether a line has a counter of its own in place of one from a line before; only epochs go on beside other counters.

    nanoGPT writes ``step 100: train loss …`` at evaluations and ``iter 101: loss …`` between them.
    """
    return any(rank(own) is not None and is_epoch(own) == is_epoch(name) for own in row)


def has_metric(row: Row) -> bool:
    return any(is_metric(name) or name == UNNAMED for name in row)


def _blocks(file: IO[bytes], progress: Progress | None) -> Iterator[str]:
    """The text in parts that end with lines."""
    rest = b""
    while block := file.read(BLOCK):
        text = rest + block
        cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1 or len(text)
        rest = text[cut:]
        yield text[:cut].decode("utf-8", errors="replace")
        if progress is not None:
            progress(len(block))
    yield rest.decode("utf-8", errors="replace")


def _lines_of(text: str) -> Iterator[str]:
    """Lines, also those that a progress bar writes over each other."""
    for line in re.split(r"[\r\n\x08]+", text):
        if line:
            yield COLOURS.sub("", line[:LONGEST])


def parse_line(line: str, comma: Comma = "thousands", wanted: Sequence[str] = (), others: Counter[str] | None = None) -> Row:
    """The named numbers of a line that are counters, rates, losses or metrics.

    >>> parse_line("iter 100: loss 3.2, time 12ms")
    {'iter': 100.0, 'loss': 3.2}
    >>> parse_line(" iteration      100/    5000 | consumed samples:  25600 | lm loss: 7.1E+00 | loss scale: 1.0 |")
    {'iteration': 100.0, 'iteration of': 5000.0, 'consumed samples': 25600.0, 'lm loss': 7.1}
    >>> parse_line("Epoch: [3][ 50/312]  Loss 2.3 (2.4)")
    {'Epoch': 3.0, 'Loss': 2.3, 'batch': 50.0, 'batch of': 312.0}
    >>> parse_line("Validation loss at iteration 1000: 2.34")
    {'iteration': 1000.0, 'Validation loss': 2.34}
    """
    cell = CELL.fullmatch(line) if "|" in line else None
    line = f"{cell['key']}: {cell['number']}" if cell is not None else REMARK.sub("", line) if " (" in line else line
    row, rest, pairs = Row(), line, list(PAIR.finditer(line))
    roles = list(ROLE.finditer(line))
    if roles:
        own = [found.span("key") for found in pairs if _has_role(_name(found["key"], found["unit"]))]
        roles = [role for role in roles if not any(a <= role.start() < b for a, b in own)]  # of the line, not of a name
    for found in pairs:
        if _add_pair(row, line, found, comma, wanted, roles):
            rest = rest.replace(found[0], " ", 1)
        elif others is not None and not is_aside(found["key"]):
            name = _name(found["key"], found["unit"])
            if name in others or len(others) < MOST_COUNTED:
                others[name] += 1
    rest = _add_fractions(row, rest)
    _mend_bare_roles(row)
    _add_before(row, line, comma)
    place = PLACE.search(line)
    if place is not None:
        row.setdefault("epoch", float(place["epoch"]))
        row.setdefault(BATCH, float(place["batch"]))
    metrics = [name for name in row if is_metric(name)]
    if any(role_of(role[1]) == "validation" for role in roles) or (
        metrics and all(role_of(name) == "validation" for name in metrics)
    ):
        row = {name: value for name, value in row.items() if name not in (BATCH, BATCH + OF)}  # of an evaluation, not of training
    if not has_metric(row):
        _add_unnamed(row, line, rest, comma)
    return row


def _add_unnamed(row: Row, line: str, rest: str, comma: Comma) -> None:
    """``3.2 avg loss``, and a number alone beside a count."""
    behind, bare, numbered = BEHIND.search(line), BARE.fullmatch(rest), NUMBERED.fullmatch(line)
    if behind is not None and is_metric(behind["key"]):
        row[behind["key"]] = number(behind["number"], comma)
    elif numbered is not None:
        row[INDEX], row[UNNAMED] = float(numbered["count"]), number(numbered["number"], comma)
    elif bare is not None and "." in bare["number"] and any(rank(name) is not None and name != INDEX for name in row):
        row[UNNAMED] = number(bare["number"], comma)


def _has_role(name: str) -> bool:
    """Whether a name says itself whether it is train or validation."""
    return role_of(name) != "other" and is_metric(name) and _after(name) is None


def _with_role(name: str, at: int, roles: Sequence[re.Match[str]]) -> str:
    """A name with the word for train or validation that holds at its place, if it has none of its own and the line needs one."""
    validation = [role for role in roles if role_of(role[1]) == "validation"]
    if not validation or not is_metric(name) or role_of(name) != "other":
        return name
    before = [role for role in roles if role.start() < at]
    if before:
        return f"{before[-1][1]} {name}"
    return f"{validation[0][1]} {name}" if len(validation) == len(roles) else name


def _add_pair(
    row: Row, line: str, found: re.Match[str], comma: Comma, wanted: Sequence[str], roles: Sequence[re.Match[str]]
) -> bool:
    """Take a pair into the row; whether its numbers are used up."""
    name, value = _name(found["key"], found["unit"]), number(found["number"], comma)
    if (after := _after(name)) is not None:
        if _add_after(row, line, found.end("number"), after, value, comma):
            return True
        name = after["metric"]  # a loss of 3.2
    name = _with_role(name, found.start("number"), roles)
    if (
        is_metric(name)
        and name not in row
        and found["number"].isdigit()
        and (value_behind := BEGINS.match(line, found.end("number")))
    ):
        row.setdefault(INDEX, value)  # ``Train loss 100 3.2`` and ``Validation loss 100: 3.4``: the count comes first
        row[name] = number(value_behind["number"] or value_behind["after"], comma)
        return True
    if name in row or not (rank(name) is not None or is_rate(name) or is_metric(name) or name in wanted):
        return False
    total = number(found["of"])
    if rank(name) is not None and total == total and role_of(found["unit"] or "") == "validation":
        return True  # ``Iter(val) [500/500]`` counts the batches of an evaluation
    row[name] = value / total if is_rising(name) and total > 0 else value
    if rank(name) is not None and total == total:
        row[name + OF] = total
    return True


def _add_after(row: Row, line: str, end: int, after: re.Match[str], count: float, comma: Comma) -> bool:
    """``loss at iteration 1000: 2.34`` and ``loss after 1000 steps: 2.34``; whether the number is a count."""
    value = VALUE.match(line, end)
    counter = after["counter"] or (value["counter"] if value is not None else None)
    if counter:
        row.setdefault(counter, count)
    if value is not None and counter:
        row.setdefault(after["metric"], number(value["number"], comma))
    return bool(counter) or after["word"].lower() != "of"


@lru_cache(maxsize=4096)
def _after(name: str) -> re.Match[str] | None:
    """``loss at iteration``, whose number is not that of the loss."""
    found = AFTER.fullmatch(name)
    return found if found is not None and is_metric(found["metric"]) else None


@lru_cache(maxsize=4096)
def _name(key: str, unit: str | None) -> str:
    """The name of a number: a counter is its last words, and levels of logging are no part of a name.

    >>> _name("INFO Train loss", None), _name("loss at global step", None), _name("elapsed time per iteration", " (ms)")
    ('Train loss', 'loss at global step', 'elapsed time per iteration (ms)')
    >>> _name("Train Epoch", None), _name("now at step", None)
    ('Epoch', 'step')
    """
    parts = key.split(" ")
    while len(parts) > 1 and parts[0].lower() in LEVELS:
        parts = parts[1:]
    while len(parts) > 1 and parts[-1].lower() in VERBS:
        parts = parts[:-1]
    name = " ".join(parts) + (unit if unit is not None and role_of(unit) == "other" else "")
    if is_aside(name) or {"nan", "inf"}.intersection(parts) or (AFTER.fullmatch(name) is not None and is_metric(name)):
        return name
    for length in (2, 1):
        tail = " ".join(parts[-length:])
        if rank(tail) is not None and not is_metric(tail):
            return tail if length == 1 or words(tail)[0] in ("global", "consumed", "num", "total") else parts[-1]
    return name


def _mend_bare_roles(row: Row) -> None:
    """A whole number after ``Train`` is no loss; with a fraction it is an epoch, as in timm's ``Train: 0 [ 50/312]``."""
    for name in [name for name in row if is_bare_role(name) and row[name].is_integer()]:
        value = row.pop(name)
        if BATCH in row and role_of(name) == "train":
            row.setdefault("epoch", value)


def _add_fractions(row: Row, rest: str) -> str:
    """Take the counts without a name, as of a progress bar, or of epoch and batch as in ``[1/10][ 50/312]``; what is left."""
    found = [one for one in FRACTION.finditer(rest) if _count(one["count"]) <= _count(one["of"]) > 1]
    if not found or BATCH in row:
        return rest
    if len(found) > 1 and not rest[found[0].end() : found[1].start()].strip(" ][|,") and not any(map(is_epoch, row)):
        row["epoch"] = _count(found[0]["count"])
        found = found[1:]
    row[BATCH], row[BATCH + OF] = _count(found[0]["count"]), _count(found[0]["of"])
    return rest[: found[0].start()] + " " + rest[found[0].end() :]


def _count(text: str) -> float:
    return number(text, "thousands")


def _add_before(row: Row, line: str, comma: Comma) -> None:
    """``100 steps``, or a number at the start of a line, where no counter was named."""
    if any(rank(name) is not None for name in row):
        return
    for found in BEFORE.finditer(line):
        row.setdefault(found["counter"] or "it", number(found["number"], comma))
    start = START.match(line)
    if start is not None and not any(rank(name) is not None for name in row):
        row[INDEX] = float(start["number"])
