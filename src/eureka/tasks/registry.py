"""The tasks by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eureka.data.own_text import own_name
from eureka.registry import Entry, Registry

if TYPE_CHECKING:
    from eureka.tasks.task import Task

PAPER = "Hoffmann et al. 2024"
RULE = f"the rule of {PAPER}"
REAL = f"{PAPER}; pictures of MNIST and Fashion-MNIST"

TASKS: Registry[Task] = Registry(
    "task",
    [
        Entry(
            name="tiles",
            target="eureka.tasks.tiles:Tiles",
            summary="synthetic noisy tiles: indicators tell which target to classify; any number of decisions",
            source=RULE,
        ),
        Entry(
            name="digits",
            target="eureka.tasks.digits:Digits",
            summary="the same rule on real 8×8 handwritten digits; nothing to download",
            source=f"{RULE}; pictures of Alpaydin & Kaynak 1998",
        ),
        Entry(
            name="chain",
            target="eureka.tasks.chain:chain",
            summary="three decisions or more, on tiles or digits: each answer tells which pair to compare next",
            source=f"a generalisation of {PAPER}",
        ),
        Entry(
            name="main",
            target="eureka.tasks.paper:Main",
            summary="two digits the same → class of the top-right fashion item, else of the bottom-left one",
            source=REAL,
        ),
        Entry(
            name="no_fixed_position",
            target="eureka.tasks.paper:NoFixedPosition",
            summary="as main, but digit and fashion item swap places at random within each row",
            source=REAL,
        ),
        Entry(
            name="cifar_indicator",
            target="eureka.tasks.paper:CifarIndicator",
            summary="two photographs of the same kind → class of the fashion item, else of the digit; all shuffled",
            source=f"{REAL} and CIFAR-10",
        ),
        Entry(
            name="top_if_above",
            target="eureka.tasks.paper:TopIfAbove",
            summary="two fashion items in one column → class of the upper one, else of the lower one",
            source=REAL,
        ),
        Entry(
            name="colour_match",
            target="eureka.tasks.paper:ColourMatch",
            summary="two digits in colours of one group → class of the top-right digit, else of the bottom-left one",
            source=REAL,
        ),
        Entry(
            name="fashion_or_colour",
            target="eureka.tasks.paper:FashionOrColour",
            summary="two digits the same → class of the fashion item, else its colour",
            source=REAL,
        ),
        Entry(
            name="digit_groups",
            target="eureka.tasks.paper:DigitGroups",
            summary="as main, but digits of one group, {1, 2} or {3, 4}, count as the same",
            source=REAL,
        ),
        Entry(
            name="window_sum",
            target="eureka.tasks.sums:WindowSum",
            summary="sums over a moving window of numbers, modulo 17",
            source="Gopalani & Hu 2025",
        ),
        Entry(
            name="prefix_sum",
            target="eureka.tasks.sums:PrefixSum",
            summary="sums of all numbers so far, modulo 17",
            source="Gopalani & Hu 2025",
        ),
        Entry(
            name="induction",
            target="eureka.tasks.induction:Induction",
            summary="random tokens repeated at a random lag: find the last occurrence, copy what followed",
            source="Olsson et al. 2022",
        ),
        Entry(
            name="regression",
            target="eureka.tasks.regression:Regression",
            summary="linear regression from examples in the context",
            source="Garg et al. 2022",
        ),
        Entry(
            name="classification",
            target="eureka.tasks.classification:Classification",
            summary="the label of an item, from labelled items of the same class in the context",
            source="Reddy 2023",
        ),
        Entry(
            name="masked_text",
            target="eureka.tasks.masked_text:MaskedText",
            summary="hidden words of real English text",
            source="Devlin et al. 2019",
        ),
    ],
    base="eureka.tasks.task:Task",
    group="eureka.tasks",
)


def task_summary(name: str, settings: Mapping[str, Any]) -> str:
    """What a task is, in a line; text of the user's own is called that."""
    own = own_name(str(settings.get("corpus", ""))) if name == "masked_text" else None
    return TASKS.entry(name).summary if own is None else f"hidden words of own text ({own})"
