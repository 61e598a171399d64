"""Each fix against the baseline: in words for people, with every figure as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from itertools import groupby

from eureka.formats import rate
from eureka.report.comparing import Against
from eureka.report.groups import Groups
from eureka.report.headline import fix_name
from eureka.report.markup import Html, join, tag
from eureka.report.table import download
from eureka.runs import Record


def verdicts(groups: Groups, found: Sequence[Against]) -> Html:
    """A line for each fix, under what it is compared with; nothing if there is no baseline."""
    parts: list[Html] = []
    for (_, baseline), those in groupby(found, key=lambda one: (one.setting, one.baseline)):
        lines = list(those)
        parts.append(tag("p", *_opening(groups, baseline, lines)))
        parts.append(tag("dl", *(_line(groups, one) for one in lines)))
    return tag("div", *parts, class_="verdicts") if parts else Html("")


def _opening(groups: Groups, baseline: int, lines: Sequence[Against]) -> list[str]:
    setting, several = groups.settings[lines[0].setting], any(map(_several_rates, lines))
    fair = [" ", _rate(lines[0].found.baseline_best_lr), ", each at its own best learning rate:"] if several else [":"]
    return [f"{setting}: against " if setting else "Against ", fix_name(groups, baseline), *fair]


def _line(groups: Groups, one: Against) -> Html:
    where = [" ", _rate(one.found.best_lr)] if _several_rates(one) else []
    return join(tag("dt", fix_name(groups, one.fix), *where), tag("dd", one.found.verdict))


def _rate(lr: float) -> Html:
    return tag("small", f"lr {rate(lr)}")


def _several_rates(one: Against) -> bool:
    return one.found.rates > 1 or one.found.baseline_rates > 1


def comparisons_link(groups: Groups, found: Sequence[Against]) -> Html:
    """The comparisons as a file that the page carries within itself."""
    if not found:
        return Html("")
    return download("Comparisons as CSV", "eureka-comparisons.csv", comparisons_csv(groups, found))


def comparisons_csv(groups: Groups, found: Sequence[Against]) -> str:
    """A line for each comparison with all its figures; an end of an interval that is not known leaves its place empty."""
    text = io.StringIO()
    lines = [_flat(groups, one) for one in found]
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def _flat(groups: Groups, one: Against) -> Record:
    figures = one.found.as_json() | {"fix": groups.fixes[one.fix], "baseline": groups.fixes[one.baseline]}
    line: Record = {"setting": groups.settings[one.setting]} if len(groups.settings) > 1 else {}
    figures.pop("setting")  # the page has a name for it
    for key, value in figures.items():
        if isinstance(value, dict):
            line |= {key: value["value"], f"{key}_low": value["low"], f"{key}_high": value["high"]}
        else:
            line[key] = value
    return line
