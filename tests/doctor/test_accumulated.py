"""Steps that accumulate gradients over parts of a batch are diagnosed like others: what enters the model belongs to its loss."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from eureka.doctor.checks import labels, padding, targets
from eureka.doctor.exam import Exam
from eureka.forks.case import make_case
from tests.doctor.test_no_false_alarms import Model, tokens


def accumulated(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
    """A step on four parts of a batch, whose losses add up to the mean."""
    optimizer.zero_grad()
    losses = []
    for x, y in zip(batch[0].chunk(4), batch[1].chunk(4), strict=True):
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten()) / 4
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.detach())
    optimizer.step()
    return torch.stack(losses).sum()


def exam(offset: int, pad: int | None = None) -> Exam:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = tokens(14)
    batches = [(row[:, :12], row[:, offset : 12 + offset]) for row in rows]
    if pad is not None:
        ends = torch.arange(12) >= torch.randint(6, 13, (24, 16, 1))
        batches = [(x.masked_fill(end, pad), y.masked_fill(end, -100)) for (x, y), end in zip(batches, ends, strict=True)]
    model = Model(pad=pad, tokens=13)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return Exam(make_case(model, batches, loss=None, optimizer=optimizer, step=accumulated, most=24))


def test_labels_that_follow_from_their_own_part_are_not_unrelated() -> None:
    assert list(labels.check(exam(offset=1))) == []


def test_padding_of_another_part_is_not_taken_for_that_of_the_first() -> None:
    assert list(padding.check(exam(offset=1, pad=12))) == []


@pytest.mark.parametrize(("offset", "named"), [(0, ["labels_misaligned"]), (1, []), (2, ["labels_misaligned"])])
def test_labels_that_are_not_shifted_once_are_found(offset: int, named: list[str]) -> None:
    assert [one.cause for one in targets.check(exam(offset))] == named
