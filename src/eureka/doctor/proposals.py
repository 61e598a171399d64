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


def proposed(cause: str) -> tuple[str, ...]:
    """Names of remedies for a cause; none where something has to be mended by hand first."""
    return PROPOSED.get(cause, ())
