"""Which remedies are worth a race after a diagnosis."""

from __future__ import annotations

SHARPER = ("clear_norm_softmax", "norm_softmax", "clear_norm_softmax_x10", "temperature_third", "norm_softmax_var", "rate_x10")
PROPOSED: dict[str, tuple[str, ...]] = {
    "lr_too_small": ("rate_x10", "rate_x3", "fresh_optimizer"),
    "lr_too_large": ("rate_tenth", "rate_third", "fresh_optimizer"),
    "weight_decay_too_large": ("no_weight_decay", "rate_tenth"),
    "positions_missing": ("clear_norm_softmax", "clear_positions", "clear_start", "rate_x10"),
    "attention_flat": SHARPER,
    "attention_saturated": ("clear_start", "rate_tenth", "fresh_optimizer", "norm_softmax"),
    "healthy": ("rate_x10", "clear_norm_softmax", "clear_norm_softmax_x10", "temperature_third", "clear_start", "rate_x3"),
}
"""By cause; a fault of the data, the loss or the loop is mended by hand, and no remedy is proposed for it."""


def proposed(cause: str) -> tuple[str, ...]:
    """Names of remedies for a cause; none where something has to be mended by hand first."""
    return PROPOSED.get(cause, ())
