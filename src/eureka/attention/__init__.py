"""Attention operators: one file each, chosen by name, all with the same call.

Shapes, in every file of this package: B batch, H heads, Hk key heads (Hk divides H), Q queries, K keys, D head dimension.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, Mask, NoMask, as_mask
    from eureka.attention.operator import Operator, SoftmaxFamily, make_operator
    from eureka.attention.registry import FIXES
    from eureka.attention.statistics import attention_entropy, participation, row_spread

__all__ = [
    "FIXES",
    "Bias",
    "Causal",
    "Dense",
    "KeyPadding",
    "Mask",
    "NoMask",
    "Operator",
    "SoftmaxFamily",
    "as_mask",
    "attention_entropy",
    "make_operator",
    "participation",
    "row_spread",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "FIXES": "eureka.attention.registry",
        **dict.fromkeys(["attention_entropy", "participation", "row_spread"], "eureka.attention.statistics"),
        **dict.fromkeys(["Operator", "SoftmaxFamily", "make_operator"], "eureka.attention.operator"),
        **dict.fromkeys(["Bias", "Causal", "Dense", "KeyPadding", "Mask", "NoMask", "as_mask"], "eureka.attention.mask"),
    },
)
