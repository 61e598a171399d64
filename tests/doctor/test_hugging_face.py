"""`eureka.diagnose(trainer)`: the Trainer's own step on a copy, and a Trainer that is bit for bit as it was."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.doctor import diagnose as module
from eureka.doctor import exam
from eureka.doctor.diagnose import CHECKS
from eureka.errors import RequestError
from eureka.forks.case import take
from eureka.forks.setup import hand_over
from tests.doctor.digests import digest

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")

# what the libraries say about themselves on the way
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


class Own(transformers.Trainer):  # type: ignore[misc, name-defined]
    """As people write them: a loss of their own that logs, counts and remembers."""

    seen: list[float]
    count = 0
    loss_is_scaled_for_ga = False

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **rest: Any) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = nn.functional.cross_entropy(outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        self.log({"own": float(loss.detach())})
        self.seen.append(float(loss.detach()))
        self.count += 1
        return (loss, outputs) if return_outputs else loss


class Listening(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_log(self, *args: Any, **kwargs: Any) -> None:
        self.heard.append("log")


def gpt2() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 8, "bos_token_id": 1, "eos_token_id": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    model.loss_type = "ForCausalLM"
    return model


def make_trainer(folder: Path, kind: Any = None, **more: Any) -> Any:
    rows = torch.randint(3, 12, (64, 3), generator=torch.Generator().manual_seed(1)).repeat(1, 2)
    settings = {
        "per_device_train_batch_size": 8,
        "max_steps": 12,
        "learning_rate": 1e-3,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 3,
    }
    arguments = transformers.TrainingArguments(str(folder), **(settings | more))
    data = [{"input_ids": row, "labels": row.clone()} for row in rows]
    trainer = (kind or transformers.Trainer)(gpt2(), arguments, train_dataset=data, callbacks=[Listening()])
    if kind is Own:
        trainer.seen = []
    return trainer


def of_trainer(trainer: Any) -> tuple[Any, ...]:
    """All that a diagnosis could have touched."""
    accelerator, handler = trainer.accelerator, trainer.callback_handler
    optimizer = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    scheduler = None if trainer.lr_scheduler is None else trainer.lr_scheduler.state_dict()
    listener = next(one for one in handler.callbacks if isinstance(one, Listening))
    own = (getattr(trainer, "seen", None), getattr(trainer, "count", None))
    kept = sorted((name, id(value)) for name, value in vars(trainer).items())
    held = [len(accelerator._dataloaders), len(accelerator._optimizers), len(accelerator.gradient_state.dataloader_references)]
    data = [(row["input_ids"], row["labels"]) for row in trainer.train_dataset]
    words = (repr(trainer.state), repr(trainer.control), repr(trainer.args.to_dict()), listener.heard)
    return trainer.model, optimizer, scheduler, own, kept, held, data, words


@pytest.fixture(autouse=True)
def few_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKS", CHECKS[:2])
    monkeypatch.setattr(exam, "STEPS", 6)


@pytest.mark.parametrize(("kind", "trained"), [(None, False), (Own, True)])
def test_a_trainer_is_bit_equal_after_a_diagnosis(kind: Any, trained: bool, tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, kind)
    if trained:
        trainer.train()
    before = digest(*of_trainer(trainer))
    found = eureka.diagnose(trainer)
    assert not [check.skipped for check in found.checks if check.skipped]
    assert digest(*of_trainer(trainer)) == before
    assert trainer.optimizer is None or trained


def test_a_trainer_is_bit_equal_after_an_interruption(tmp_path: Path) -> None:
    calls = iter(range(1000))

    class Interrupted(Own):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            if next(calls) == 9:
                raise KeyboardInterrupt
            return super().compute_loss(*args, **kwargs)

    trainer = make_trainer(tmp_path, Interrupted)
    trainer.seen = []
    before = digest(*of_trainer(trainer))
    with pytest.raises(KeyboardInterrupt):
        eureka.diagnose(trainer)
    assert digest(*of_trainer(trainer)) == before


def test_training_after_a_diagnosis_is_training_without_one(tmp_path: Path) -> None:
    ways = []
    for looked in (False, True):
        trainer = make_trainer(tmp_path, logging_steps=1)
        if looked:
            eureka.diagnose(trainer)
        trainer.train()
        ways.append([line["loss"] for line in trainer.state.log_history if "loss" in line])
    assert len(ways[0]) == 12
    assert ways[0] == ways[1]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (None, {"gradient_accumulation_steps": 2, "max_grad_norm": 0.1}),
        (Own, {"gradient_accumulation_steps": 2, "max_grad_norm": 0.0, "optim": "sgd", "learning_rate": 0.1}),
        (None, {"label_smoothing_factor": 0.2, "weight_decay": 0.3}),
        (None, {"bf16": True, "max_grad_norm": 0.0}),
    ],
)
def test_its_steps_are_those_that_the_trainer_makes(kind: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    constant = {"lr_scheduler_type": "constant", "max_steps": 3}
    twin = make_trainer(tmp_path, kind, **constant, **settings)
    trainer = make_trainer(tmp_path, kind, **constant, **settings)
    transformers.set_seed(42)
    batches = take(hand_over(trainer).batches, 3)
    twin.get_train_dataloader = lambda: [one for batch in batches for one in (batch if isinstance(batch, list) else [batch])]
    given = hand_over(trainer)
    assert given.step is not None
    model, optimizer = copy.deepcopy((given.model, given.optimizer))
    twin.model.load_state_dict(trainer.model.state_dict())
    for module_ in (model, twin.model):
        for part in module_.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
    for batch in batches:
        given.step(model, optimizer, batch)  # type: ignore[arg-type]
    twin.train()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, twin.model.get_parameter(name)), name


@pytest.mark.parametrize(
    ("settings", "trained", "note"),
    [
        ({"warmup_steps": 4}, False, "The schedule is warming up, at 0 now; the experiments go on at its mean, "),
        ({}, True, "The schedule has ended at a learning rate of 0; the experiments go on at its mean, "),
    ],
)
def test_a_rate_that_says_nothing_about_the_run_is_replaced_and_told(
    settings: dict[str, Any], trained: bool, note: str, tmp_path: Path
) -> None:
    trainer = make_trainer(tmp_path, **settings)
    if trained:
        trainer.train()
    given = hand_over(trainer)
    assert pytest.approx(5e-4, rel=0.2) == given.optimizer.param_groups[0]["lr"]  # type: ignore[union-attr]
    assert given.notes[0].startswith(note)
    assert [group["lr"] for group in getattr(trainer.optimizer, "param_groups", [])] == [0.0, 0.0] * trained


def test_a_rate_that_is_far_too_small_is_found_in_a_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHECKS", [check for check in CHECKS if check.name in ("movement", "rate")])
    monkeypatch.setattr(exam, "STEPS", 24)
    found = eureka.diagnose(make_trainer(tmp_path, learning_rate=1e-8, lr_scheduler_type="constant"))
    assert found.cause == "lr_too_small"
    assert found.remedies[0] == f"rate_x{found.findings[0].numbers['factor']:.0f}"  # what it has measured is raced first
    assert "1e-8" in found.findings[0].evidence[0]


def test_what_a_trainer_brings_itself_is_not_taken_again(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="loss, optimizer and step are the Trainer's own"):
        eureka.diagnose(make_trainer(tmp_path), loss=lambda model, batch: torch.zeros(()))


def test_a_trainer_without_data_is_refused_in_one_sentence(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    trainer.train_dataset = None
    with pytest.raises(RequestError, match="this Trainer has no train_dataset"):
        eureka.diagnose(trainer)


def test_its_logged_losses_are_the_log(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path)
    assert hand_over(trainer).log is None
    trainer.train()
    assert [isinstance(value, float) for value in hand_over(trainer).log] == [True] * 4


def test_the_accelerator_is_asked_but_not_changed() -> None:
    from eureka.forks.hugging_face import PlainAccelerator

    class Real:
        device = "cpu"

        def prepare(self, *things: Any) -> Any:
            pytest.fail("placed something")

    plain = PlainAccelerator(Real())
    value = torch.ones(1, requires_grad=True)
    plain.backward((value * 2).sum())
    assert plain.prepare(value) is value
    assert plain.prepare(value, 1) == (value, 1)
    assert plain.device == "cpu"
    assert isinstance(value.grad, Tensor)
    assert plain.clip_grad_norm_([value], 1.0).item() == 2.0
