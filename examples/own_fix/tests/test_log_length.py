"""The fix keeps the contract, and is plain softmax at its own length."""

from __future__ import annotations

import torch
from own_fix import LogLength

import eureka
from eureka.testing import check_operator


def test_it_keeps_the_contract() -> None:
    check_operator(LogLength())


def test_it_is_plain_softmax_at_its_own_length() -> None:
    q, k, v = (torch.randn(2, 2, 16, 8) for _ in range(3))
    torch.testing.assert_close(LogLength(length=16)(q, k, v), eureka.make_operator("softmax")(q, k, v))
