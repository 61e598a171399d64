"""Causes that were planted in real small runs are named first; healthy runs get no fault."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import eureka
from benchmarks.faults.run import chosen
from benchmarks.faults.training import hand_over
from eureka.doctor.finding import CAUSES, Diagnosis

QUICK = [
    "zero (gpt adamw)", "× 150 (gpt adamw)", "blocks in a list (gpt sgd)", "zeroed before the step (hand cloze)",
    "norm 1e-4 (gpt sgd)", "in SGD (hand padded sgd)", "shifted twice (gpt adamw)", "softmax before cross-entropy (gpt sgd)",
    "a column against a row (hand series)", "of the next batch (gpt adamw)", "all tokens unknown (gpt adamw)",
    "over the queries (hand causal)", "no mask (gpt adamw)", "window of one (gpt sgd)", "none (gpt adamw)",
    "healthy: learning (gpt adamw)", "healthy: fresh (hand cloze)",
]  # fmt: skip


def diagnosis_of(name: str, folder: Path) -> tuple[str, Diagnosis]:
    (plan,) = [plan for plan in chosen(None) if plan.name.endswith(name)]
    case = hand_over(plan, 0, folder)
    found = eureka.diagnose(case.model, case.batches, loss=case.loss, optimizer=case.optimizer, step=case.step, log=case.log)
    return plan.cause, found


@pytest.mark.parametrize("name", QUICK)
def test_the_cause_that_was_planted_is_named_first(name: str, tmp_path: Path) -> None:
    torch.set_num_threads(1)
    cause, found = diagnosis_of(name, tmp_path)
    assert found.cause == cause, str(found)
    assert {one.cause for one in found.findings} <= set(CAUSES)
    assert [one.weight for one in found.findings] == sorted((one.weight for one in found.findings), reverse=True)
    assert all(one.evidence and one.advice for one in found.findings)
