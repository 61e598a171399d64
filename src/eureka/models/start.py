"""How the weights of a transformer start, by name: what ``model.start`` may say. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Start = Literal["paper", "clear_positions", "clear"]


@dataclass(frozen=True)
class StartKind:
    """What a start asks of `eureka.clear_start`; None leaves that part as it was drawn."""

    summary: str
    positions: float | None = None
    logits: float | None = None


STARTS: Mapping[Start, StartKind] = {
    "paper": StartKind("all weights as they are drawn, as the paper has it"),
    "clear_positions": StartKind("learned positions as loud as the content that they are added to", positions=1.0),
    "clear": StartKind(
        "learned positions as loud as the content, and W_Q and W_K so that the rows of the logits have a spread of 1",
        positions=1.0,
        logits=1.0,
    ),
}

EXPLANATION = (
    "A start is what a model has before its first step, whatever the fix. A transformer waits when what it must address by"
    " is faint (positions of 0.02 beside contents of 0.1 or more) and when what it addresses with is flat (logits that"
    " hardly differ from key to key). A clear start measures both on one batch and rescales learned positions, and W_Q and"
    " W_K layer after layer; directions stay as they were drawn, and nothing is added at run time. Compare starts with"
    " `eureka compare RECIPE --start paper,clear`; for a model of your own call `eureka.clear_start(model, inputs)`."
)
