"""The line of code that a diagnosis gives changes the rate or the decay that the run is trained with from then on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer, lr_scheduler

import eureka
from eureka.doctor.finding import Diagnosis, Finding
from eureka.doctor.proposals import ATTENTION, PROPOSED, proposed
from eureka.forks.settings_code import settings_code
from eureka.forks.setup import Setup, hand_over

DECAY = "for group in optimizer.param_groups: group['weight_decay'] = min(group['weight_decay'], 0.01)"
TIMES = "for group in optimizer.param_groups: group['lr'] *= 1000"
SCHEDULERS: dict[str, Callable[[Optimizer], Any]] = {
    "lambda": lambda optimizer: lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    "steps": lambda optimizer: lr_scheduler.StepLR(optimizer, 7),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingLR(optimizer, 50),
    "restarts": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 15),
    "linear": lr_scheduler.LinearLR,
    "none": lambda optimizer: None,
}


def given(optimizer: Optimizer, scheduler: Any = None) -> Setup:
    def step(model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        scheduler.step()
        return torch.zeros(1)

    return Setup(model=nn.Linear(1, 1), batches=[1], optimizer=optimizer, step=step)


def rates(name: str, paste: bool, seen: bool) -> list[float]:
    """Of twenty steps after ten, and after the line was run, if it is."""
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1e-6)
    scheduler = SCHEDULERS[name](optimizer)
    found: list[float] = []
    for step in range(30):
        if step == 10 and paste:
            code = settings_code(TIMES, given(optimizer, scheduler if seen else None))
            exec(code, {"optimizer": optimizer, "scheduler": scheduler})
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        found.append(optimizer.param_groups[0]["lr"])
    return found[10:]


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("seen", [True, False], ids=["in the step", "beside it"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_rate_stays_a_thousand_times_as_high_whatever_the_scheduler_does(name: str, seen: bool) -> None:
    assert rates(name, True, seen) == pytest.approx([1000 * rate for rate in rates(name, False, seen)])


def test_a_cycle_is_made_anew_and_other_code_stays() -> None:
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1e-6)
    assert settings_code("eureka.patch(model)", given(optimizer)) == "eureka.patch(model)"
    cycle = lr_scheduler.OneCycleLR(optimizer, 1e-6, total_steps=100)
    for seen in (cycle, None):
        assert settings_code(TIMES, given(optimizer, seen)) == "optimizer, scheduler = …  # made anew, at 1000 times the rate"


def test_a_schedule_that_has_ended_is_not_stepped_on() -> None:
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    lr_scheduler.LambdaLR(optimizer, lambda step: 0.0)
    optimizer.step()
    code = "for group in optimizer.param_groups: group['lr'] = 0.001"
    assert settings_code(code, given(optimizer)) == f"{code}  # and no more scheduler.step()"


def test_a_schedule_that_is_nearly_over_is_not_stepped_on_and_its_base_rate_is_not_raised() -> None:
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    lr_scheduler.LambdaLR(optimizer, lambda step: 1e-5)
    code = "for group in optimizer.param_groups: group['lr'] = 0.001"
    assert settings_code(code, given(optimizer)) == f"{code}  # and no more scheduler.step()"
    assert settings_code(TIMES, given(optimizer)) == "optimizer, scheduler = …  # made anew, at a rate of 1e-05"


def test_a_warm_up_from_zero_is_stepped_on_at_another_base_rate() -> None:
    optimizer = SGD([torch.zeros(1, requires_grad=True)], lr=1e-3)
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda step: min(step / 4, 1.0))
    code = "for group in optimizer.param_groups: group['lr'] = 0.01"
    exec(settings_code(code, given(optimizer)), {"optimizer": optimizer, "scheduler": scheduler})
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.01


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_parameters_that_are_added_to_an_optimiser_follow_the_schedule_of_the_others(name: str) -> None:
    torch.manual_seed(0)
    first, last = nn.Linear(4, 8), nn.Linear(8, 3)
    model = nn.Sequential(first, nn.Tanh(), last)
    optimizer = SGD(first.parameters(), lr=0.1)
    scheduler = SCHEDULERS[name](optimizer)
    batches = [(x, x[:, :3].argmax(dim=1)) for x in torch.randn(24, 16, 4)]
    found = eureka.diagnose(
        model,
        batches,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        optimizer=optimizer,
    )
    (code,) = [one.code for one in found.findings if one.cause == "not_in_optimizer"]
    exec(code, {"optimizer": optimizer, "model": model})
    before = last.weight.detach().clone()
    for x, y in batches[:2]:
        nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
    assert not torch.equal(before, last.weight)
    assert len(optimizer.param_groups) == (2 if scheduler is None else 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_parameters_that_the_optimiser_of_a_trainer_lacks_are_trained_from_then_on(tmp_path: Path) -> None:
    trainer = hugging_face(tmp_path)
    trainer.optimizer = SGD(trainer.model.transformer.wte.parameters(), lr=0.1)
    trainer.lr_scheduler = lr_scheduler.LambdaLR(trainer.optimizer, lambda step: 1.0)
    code = "optimizer.add_param_group({'params': [p for p in model.parameters() if id(p) not in known]})"
    exec(settings_code(code, hand_over(trainer)), {"trainer": trainer})
    before = trainer.model.transformer.ln_f.weight.detach().clone()
    assert trained_at(trainer) == [0.1] * 10
    assert not torch.equal(before, trainer.model.transformer.ln_f.weight)


def hugging_face(folder: Path, **settings: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")
    torch.manual_seed(0)
    sizes = {"vocab_size": 16, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
    rows = torch.randint(0, 16, (64, 8))
    for place in range(1, 8):
        rows[:, place] = (5 * rows[:, place - 1] + 3) % 16
    usual = {"max_steps": 10, "learning_rate": 1e-6, "logging_steps": 1, "save_strategy": "no", "report_to": []}
    arguments = transformers.TrainingArguments(str(folder), **usual | {"use_cpu": True, "disable_tqdm": True} | settings)
    data = [{"input_ids": row, "labels": row} for row in rows]
    return transformers.Trainer(model, arguments, train_dataset=data)


def trained_with(trainer: Any, setting: str) -> list[list[float]]:
    """A setting of each group, at the steps of the next `train()`."""
    from transformers import TrainerCallback

    found: list[list[float]] = []

    class Watch(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            found.append([float(group[setting]) for group in rest["optimizer"].param_groups])

    trainer.add_callback(Watch())
    trainer.train()
    trainer.remove_callback(Watch)
    return found


def trained_at(trainer: Any) -> list[float]:
    """The rates of the steps of the next `train()`."""
    return [rates[0] for rates in trained_with(trainer, "lr")]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_advice_for_a_trainer_reaches_its_next_training_before_and_after_another(tmp_path: Path) -> None:
    plain = trained_at(hugging_face(tmp_path))
    trainer = hugging_face(tmp_path)
    found = eureka.diagnose(trainer)
    assert found.cause == "lr_too_small"
    factor = found.findings[0].numbers["factor"]
    assert found.findings[0].code == f"trainer.args.learning_rate *= {factor:g}  # before train()"
    exec(found.findings[0].code, {"trainer": trainer})
    assert trained_at(trainer) == pytest.approx([factor * rate for rate in plain])
    exec(settings_code(TIMES.replace("1000", "0.1"), hand_over(trainer)), {"trainer": trainer})
    assert trained_at(trainer) == pytest.approx([0.1 * factor * rate for rate in plain])


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_advice_for_a_trainer_reaches_an_optimiser_and_a_scheduler_of_the_users_own(tmp_path: Path) -> None:
    for scheduled in (False, True):
        trainer = hugging_face(tmp_path)
        own = SGD(trainer.model.parameters(), lr=1e-6)
        trainer.optimizer = own
        trainer.lr_scheduler = lr_scheduler.LambdaLR(own, lambda step: 1.0) if scheduled else None
        exec(settings_code(TIMES, hand_over(trainer)), {"trainer": trainer})
        wanted = [1e-3] * 10 if scheduled else [1e-4 * left for left in range(10, 0, -1)]  # the Trainer's own goes down to 0
        assert trained_at(trainer) == pytest.approx(wanted)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_the_advice_to_decay_less_reaches_the_next_training_and_leaves_biases_without_decay(tmp_path: Path) -> None:
    trainer = hugging_face(tmp_path, learning_rate=1e-3, weight_decay=100.0)
    (found,) = [one for one in eureka.diagnose(trainer).findings if one.cause == "weight_decay_too_large"]
    assert found.code == "trainer.args.weight_decay = 0.01  # before train()"
    exec(found.code, {"trainer": trainer})
    assert trained_with(trainer, "weight_decay") == [[0.01, 0.0]] * 10
    exec(settings_code(DECAY.replace("0.01", "0.001"), hand_over(trainer)), {"trainer": trainer})
    assert trained_with(trainer, "weight_decay") == [[0.001, 0.0]] * 10
    exec(
        settings_code("for group in optimizer.param_groups: group['weight_decay'] = 0.0", hand_over(trainer)),
        {"trainer": trainer},
    )
    assert trained_with(trainer, "weight_decay") == [[0.0, 0.0]] * 10


def test_the_advice_to_decay_less_lowers_every_group_and_raises_none() -> None:
    groups = [{"params": [torch.zeros(1)], "weight_decay": decay} for decay in (5.0, 0.0, 0.001)]
    optimizer = SGD(groups, lr=0.1)
    exec(settings_code(DECAY, given(optimizer)), {"optimizer": optimizer})
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0, 0.001]


def test_a_diagnosis_of_a_model_without_attention_proposes_no_remedy_for_it() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    batches = [(x, x[:, :4].argmax(dim=1)) for x in torch.randn(24, 64, 8)]
    found = eureka.diagnose(
        model,
        batches,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        optimizer=SGD(model.parameters(), lr=1e-4),
    )
    assert not found.attention
    assert not Diagnosis.from_json(found.to_json()).attention
    waiting = Finding(cause="healthy", sure=0.6, explains=1.0, evidence=(), advice="", kind="waiting")
    without = Diagnosis(findings=(waiting,), checks=(), notes=(), attention=False)
    assert without.remedies == ("rate_x10", "start_over_x10", "start_over", "rate_x3")
    assert "clear_norm_softmax" in Diagnosis(findings=(waiting,), checks=(), notes=()).remedies


def test_a_model_with_attention_keeps_its_remedies() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(layer, nn.Flatten(), nn.Linear(32, 4))
    batches = [(x, x[:, 0, :4].argmax(dim=1)) for x in torch.randn(24, 16, 4, 8)]
    found = eureka.diagnose(
        model,
        batches,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        optimizer=SGD(model.parameters(), lr=1e-4),
    )
    assert found.attention
    assert all(proposed(cause) == names for cause, names in PROPOSED.items())
    assert {name for names in PROPOSED.values() for name in names} >= ATTENTION
