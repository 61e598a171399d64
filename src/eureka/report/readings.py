"""Which answers a line can read off each layer, before and after the Eureka-moment."""

from __future__ import annotations

from collections.abc import Sequence

from eureka.report.groups import Groups
from eureka.report.markup import Html, tag
from eureka.runs import Record

WHEN = ("before", "after")
CAPTION = (
    "How often a logistic probe on what a block gives on tells each answer, on samples that it was not fitted to. Dashed: before "
    "the Eureka-moment, or before the first step where there is no checkpoint from then; solid: at the end. Dotted: the share of "
    "the commonest answer. An answer that can be read off before is known already."
)


def reading_figure(data: Sequence[Record]) -> Html:
    """Where the script draws; nothing if no run was probed so."""
    if not data:
        return Html("")
    told = "Accuracy of linear probes for each answer, layer by layer, before and after the Eureka-moment."
    place = tag("div", id="readings", role="img", aria_label=told)
    return tag("figure", tag("h3", "What can be read off each layer"), place, tag("figcaption", CAPTION))


def reading_data(groups: Groups) -> list[Record]:
    """A picture for each answer, in it a line for each run and time."""
    pictures: dict[str, Record] = {}
    for i, run in enumerate(groups.runs):
        for when, stage in ((run.probes or {}).get("linear") or {}).items():
            if when not in WHEN:
                continue
            for answer, found in _best(stage["found"]).items():
                picture = pictures.setdefault(answer, {"name": answer, "chance": found["chance"], "lines": []})
                place = {"fix": groups.fix_of[i], "name": groups.name_of(i), "when": when, "step": stage["step"]}
                picture["lines"].append(place | {"layers": found["layers"], "accuracy": found["accuracy"]})
    return list(pictures.values())


def _best(found: Sequence[Record]) -> dict[str, Record]:
    """By answer, the accuracy of each layer: of the whole block, or where that is not known of the head that tells most."""
    answers: dict[str, Record] = {}
    for answer in dict.fromkeys(one["answer"] for one in found):
        known = [one for one in found if one["answer"] == answer and one["accuracy"] is not None]
        blocks = [one for one in known if one["representation"] == "block"] or known
        layers = sorted({one["layer"] for one in blocks})
        if layers:
            best = [max(one["accuracy"] for one in blocks if one["layer"] == layer) for layer in layers]
            answers[answer] = {"chance": blocks[0]["chance"], "layers": [layer + 1 for layer in layers], "accuracy": best}
    return answers
