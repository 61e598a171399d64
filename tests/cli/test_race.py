"""`eureka race` on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

CASE = """
import torch
from torch import nn

def case():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    batches = [torch.randn(8, 4) for _ in range(4)]
    return {"model": model, "batches": batches, "loss": lambda model, batch: (model(batch) - batch.sum(1, keepdim=True)).square().mean(),
            "optimizer": torch.optim.SGD(model.parameters(), lr=1e-5)}
"""


def eureka(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eureka", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env=environment, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "raced_case.py").write_text(CASE)
    return tmp_path


def test_a_function_is_raced_and_told_as_json(folder: Path) -> None:
    done = eureka(folder, "race", "raced_case:case", "--remedies", "rate_x10,norm_softmax", "--steps", "4", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert [verdict["standing"] for verdict in document["verdicts"]] == ["level", "skipped"]
    assert document["steps"] == 8


def test_a_mistake_is_one_sentence_and_the_exit_code_is_2(folder: Path) -> None:
    done = eureka(folder, "race", "raced_case:cas")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("eureka: unknown function in ")
    assert done.stderr.count("\n") == 1
