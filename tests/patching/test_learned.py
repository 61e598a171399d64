"""Parameters of operators that would be lost are told of, where it happens."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import eureka


def train(model: Any, optimiser: torch.optim.Optimizer, steps: int = 3) -> None:
    words = torch.arange(1, 10)[None]
    for _ in range(steps):
        optimiser.zero_grad()
        model(input_ids=words, labels=words).loss.backward()
        optimiser.step()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "eureka" and record.levelno == logging.WARNING]


@pytest.mark.parametrize("late", [True, False])
def test_an_optimiser_made_before_the_patch_is_told_of_once(
    late: bool, case: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    model = case("llama").model.float()
    early = torch.optim.SGD(model.parameters(), lr=0.1)
    with eureka.patch(model, "learnable_temperature") as patched:
        before = [parameter.detach().clone() for parameter in patched.parameters()]
        train(model, early if late else torch.optim.SGD(model.parameters(), lr=0.1), 5)
        same = all(torch.equal(one, other) for one, other in zip(before, patched.parameters(), strict=True))
    assert same == late
    assert [("in no optimiser" in message) for message in told(caplog)] == [True] * late


def test_two_optimisers_that_train_all_of_it_are_not_told_of(case: Callable[..., Any], caplog: pytest.LogCaptureFixture) -> None:
    model = case("llama").model.float()
    with eureka.patch(model, "learnable_temperature") as patched:
        learned = {id(parameter) for parameter in patched.parameters()}
        rest = torch.optim.SGD([p for p in model.parameters() if id(p) not in learned], lr=0.1)
        own = torch.optim.SGD(list(patched.parameters()), lr=0.1)
        for _ in range(4):
            train(model, rest, 1)
            own.step()
    assert not told(caplog)


def test_an_undone_patch_is_not_kept_alive_by_its_check(case: Callable[..., Any]) -> None:
    model = case("llama").model
    patched = eureka.patch(model, "learnable_temperature")
    patched.undo()
    held = weakref.ref(patched)
    del patched
    gc.collect()
    assert held() is None


@pytest.mark.filterwarnings("ignore")
def test_a_checkpoint_whose_operators_from_pretrained_left_out_is_told_of_and_can_be_loaded(
    tmp_path: Path, case: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    from safetensors.torch import load_file

    model = case("llama").model
    with eureka.patch(model, "learnable_temperature") as patched:
        for parameter in patched.parameters():
            parameter.data.add_(0.7)
        wanted = [parameter.detach().clone() for parameter in patched.parameters()]
        model.save_pretrained(tmp_path)
    assert not told(caplog)
    again = type(model).from_pretrained(tmp_path)
    with eureka.patch(again, "softmax"):
        assert not told(caplog), "it has no parameters that could be lost"
    with eureka.patch(again, "learnable_temperature") as patched:
        assert len(told(caplog)) == 1
        assert "from_pretrained leaves out" in told(caplog)[0]
        again.load_state_dict(load_file(tmp_path / "model.safetensors"), strict=False)
        for one, other in zip(wanted, patched.parameters(), strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [True, False])
def test_what_peft_freezes_and_does_not_save_is_told_of(
    first: bool, case: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    peft = pytest.importorskip("peft", reason="peft is not installed; last passed with peft 0.21.2")
    model = case("llama").model.float()
    patched = eureka.patch(model, "learnable_temperature") if first else None
    wrapped = peft.get_peft_model(model, peft.LoraConfig(target_modules=["q_proj"], r=2))
    patched = patched or eureka.patch(wrapped, "learnable_temperature")
    train(wrapped, torch.optim.SGD([p for p in wrapped.parameters() if p.requires_grad], lr=0.1))
    patched.undo()
    assert [("are frozen" in message, "peft saves" in message) for message in told(caplog)] == [(first, not first)]
