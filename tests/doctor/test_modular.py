"""Labels that are a sum of inputs modulo a prime are recognised, and nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import eureka
from eureka.doctor.checks.labels import modulus
from eureka.doctor.exam import Exam
from eureka.doctor.modular import SPARE, modulus_of
from eureka.forks.case import make_case


@pytest.mark.parametrize("p", [2, 3, 5, 7, 97, 113])
def test_a_sum_with_any_weights_is_found_and_its_modulus_is_named(p: int) -> None:
    rng = np.random.default_rng(p)
    x = rng.integers(0, p, (400, 12))
    weights = np.zeros(12, dtype=np.int64)
    weights[[2, 5, 9]] = rng.integers(1, p, 3)
    assert modulus_of(x.astype(float), (x @ weights + 1) % p) == p


def test_parity_of_a_few_among_many_inputs_is_found_whatever_its_two_values_are() -> None:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, (1000, 300))
    y = bits[:, [3, 77, 110, 200, 299]].sum(axis=1) % 2
    for low, high in ((0.0, 1.0), (-1.0, 1.0), (0.3, 0.7), (7.0, 9.0)):
        assert modulus_of(np.where(bits, high, low), y) == 2


@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_labels_of_which_some_are_drawn_are_no_sum(share: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (500, 20))
    y = x[:, [1, 8]].sum(axis=1) % 2
    other = rng.random(500) < share
    y[other] = rng.integers(0, 2, other.sum())
    assert (y != x[:, [1, 8]].sum(axis=1) % 2).any()
    assert modulus_of(x.astype(float), y) is None


def test_as_many_inputs_as_samples_show_nothing() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 2, (200, 200))
    y = x[:, :2].sum(axis=1) % 2
    assert modulus_of(x.astype(float), y) is None
    assert modulus_of(x[:, : 200 - 2 * SPARE].astype(float), y) == 2


def test_a_copy_of_one_input_a_product_and_numbers_with_fractions_are_no_sums() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 7, (500, 3))
    assert modulus_of(x.astype(float), 3 * x[:, 1] % 7) is None
    assert modulus_of(x.astype(float), x[:, 0] * x[:, 1] % 7) is None
    assert modulus_of(x.astype(float) + 0.5, x.sum(axis=1) % 7) is None
    assert modulus_of(np.ones((50, 3)), np.arange(50) % 2) is None
    assert modulus_of(x.astype(float), x.sum(axis=1) % 6) is None  # only primes are looked at


def test_sums_that_a_straight_line_follows_are_none() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 10, 600)
    assert modulus_of(np.eye(10)[classes], (classes >= 5).astype(np.int64)) is None
    bits = rng.integers(0, 2, (600, 4))
    assert modulus_of(bits.astype(float), bits.sum(axis=1)) is None  # at most 4, modulo 5
    more = rng.integers(0, 2, (600, 6))
    assert modulus_of(more.astype(float), more.sum(axis=1) % 3) == 3
    pair = rng.integers(0, 5, (600, 2))
    assert modulus_of(pair.astype(float), pair.sum(axis=1) % 7) is None  # 3 of 25 pairs wrap round
    assert modulus_of(pair.astype(float), pair.sum(axis=1) % 5) == 5
    assert modulus_of(rng.integers(0, 5, (600, 2)).astype(float), np.zeros(600, dtype=np.int64)) is None


def test_rows_that_repeat_are_evidence_once() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 2, (20, 40)), rng.integers(0, 2, 20)
    drawn = rng.integers(0, 20, 1000)
    assert modulus_of(x[drawn].astype(float), y[drawn]) is None


def test_numbers_that_are_too_large_or_none_are_not_taken_for_whole_ones() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 7, (300, 3)).astype(float)
    y = (x.sum(axis=1) % 7).astype(np.int64)
    for odd in (1e20, np.inf, -np.inf, np.nan):
        x[5, 0] = odd
        assert modulus_of(x, y) is None


class Sums(nn.Module):
    def __init__(self, p: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(p + 2, 8), nn.Linear(32, p)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.embedding(tokens).flatten(1))


@pytest.mark.parametrize("p", [17, 31])
def test_a_diagnosis_says_that_labels_are_a_modular_sum_and_does_not_call_them_unrelated(p: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    batches = []
    for _ in range(24):
        a, b, signs = torch.randint(p, (64,)), torch.randint(p, (64,)), torch.ones(64, dtype=torch.long)
        batches.append((torch.stack([a, p * signs, b, (p + 1) * signs], dim=1), (a + b) % p))
    model = Sums(p)
    for weight in model.parameters():
        weight.data *= 0.1  # at chance, as after a while of training
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def loss(model: nn.Module, batch: Any) -> Any:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    assert modulus(Exam(make_case(model, batches, loss=loss, optimizer=optimizer, step=None, most=24))) == p
    found = eureka.diagnose(model, batches, loss=loss, optimizer=optimizer)
    assert "labels_unrelated" not in [one.cause for one in found.findings]
    assert found.findings[0].kind == "waiting"
    assert f"modulo {p}:" in found.findings[0].evidence[1]
