"""Which remedies are worth a race after a diagnosis."""

from __future__ import annotations

PROMISING = ("rate_x10", "clear_norm_softmax_x10", "start_over_x10", "clear_norm_softmax", "start_over", "rate_x3")
SHARPER = ("clear_norm_softmax_x10", "start_over_x10", "clear_norm_softmax", "start_over", "norm_softmax_var", "rate_x10")
PROPOSED: dict[str, tuple[str, ...]] = {
    "lr_too_small": ("rate_x10", "rate_x3", "fresh_optimizer"),
    "lr_too_large": ("rate_tenth", "rate_third", "fresh_optimizer"),
    "weight_decay_too_large": ("no_weight_decay", "rate_tenth"),
    "positions_missing": (
        "clear_norm_softmax_x10",
        "start_over_x10",
        "clear_norm_softmax",
        "start_over",
        "clear_positions",
        "rate_x10",
    ),
    "attention_flat": SHARPER,
    "attention_saturated": ("clear_start", "rate_tenth", "fresh_optimizer", "norm_softmax"),
    "healthy": PROMISING,
}
"""By cause; a fault of the data, the loss or the loop is mended by hand, and no remedy is proposed for it."""


ATTENTION = frozenset(
    {"clear_norm_softmax_x10", "clear_norm_softmax", "clear_start", "clear_positions", "norm_softmax", "norm_softmax_var"}
)
"""Remedies that a model without attention has no use for; a new start is left to it."""


def proposed(cause: str, *, attention: bool = True) -> tuple[str, ...]:
    """Names of remedies for a cause; none where something has to be mended by hand first.

    attention   whether the model has any
    """
    return tuple(name for name in PROPOSED.get(cause, ()) if attention or name not in ATTENTION)
