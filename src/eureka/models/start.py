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
    "paper": StartKind("the default initialisation: all weights as the model draws them, as in the paper"),
    "clear_positions": StartKind("learned positions as large as the content that they are added to", positions=1.0),
    "clear": StartKind(
        "learned positions as large as the content, and W_Q and W_K so that the rows of the logits have a spread of 1",
        positions=1.0,
        logits=1.0,
    ),
}

EXPLANATION = (
    "A start is what a model has before its first step, whatever the fix. Attention finds a token by its position or by its"
    " content. In a new model, position embeddings are often far smaller than the content that they are added to (0.02 beside"
    " 0.1 or more), and the logits of a row are almost equal for all keys: attention is near uniform, and W_Q and W_K get"
    " little gradient. A clear start runs one batch and rescales position embeddings to the size of the content, and W_Q and"
    " W_K, layer after layer, until a row of logits has a standard deviation of 1. Only the scale of these weights changes, and"
    " nothing is added at run time. Compare starts with `eureka compare RECIPE --start paper,clear`; for a model of your own call"
    " `eureka.clear_start(model, inputs)`."
)
