from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import eureka
from eureka.curves.online import Event, OnlineDetector
from eureka.errors import RequestError
from eureka.forks.setup import hand_over
from eureka.integrations.hugging_face import HuggingFaceCallback, told_late

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="the Trainer of transformers needs it")

# what the libraries say about themselves on the way
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


def gpt2() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=20,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=16,
        bos_token_id=1,
        eos_token_id=2,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
    )
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"
    return model


def trainer(model: Any, folder: Path, **more: Any) -> Any:
    rows = torch.randint(3, 20, (64, 8), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row} for row in rows]
    settings = {
        "per_device_train_batch_size": 8,
        "max_steps": 12,
        "logging_steps": 2,
        "save_steps": 6,
        "learning_rate": 1e-3,
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "seed": 0,
    }
    return transformers.Trainer(model, transformers.TrainingArguments(str(folder), **(settings | more)), train_dataset=data)


def test_probes_and_losses_go_through_the_trainers_own_loggers(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = gpt2()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
        job = trainer(model, tmp_path, report_to=["tensorboard"])
        callback = HuggingFaceCallback(job, every=5)
        job.add_callback(callback)
        job.train()
    assert callback.monitor is not None
    assert [record.step for record in callback.monitor.records] == [0, 5, 10]
    key = "attention/grad_ratio"
    assert sum(key in line for line in job.state.log_history) == 3
    shares = [line for line in job.state.log_history if "attention/position_share_of_logits" in line]
    assert [0 < line["attention/position_share_of_input"] < 1 for line in shares] == [True] * 3
    board = EventAccumulator(str(next((tmp_path / "board").rglob("events*")).parent)).Reload()
    assert any(tag.endswith(key) for tag in board.Tags()["scalars"])
    assert not hasattr(type(model.transformer.h[0].attn), "_eureka_base"), "the model is left alone after training"


def test_events_are_those_of_the_losses_that_the_trainer_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leap that the trainer logs is found: the losses are planted, everything else is the trainer's."""
    told: list[Event] = []
    job = trainer(gpt2(), tmp_path, max_steps=400, logging_steps=1, save_strategy="no")
    job.add_callback(HuggingFaceCallback(job, every=None, on_event=told.append))
    log = job.log

    def planted(logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs["loss"] = 3.0 if job.state.global_step < 200 else 0.3
        log(logs, start_time)

    monkeypatch.setattr(job, "log", planted)
    job.train()
    detector = OnlineDetector()
    wanted = [e for line in job.state.log_history if "loss" in line and (e := detector.update(line["step"], line["loss"]))]
    assert told == wanted
    assert [event.name for event in told][:2] == ["plateau_entered", "eureka"]
    assert any("eureka/onset" in line for line in job.state.log_history)


def test_a_loss_that_the_trainer_logs_as_nan_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = trainer(gpt2(), tmp_path, max_steps=8, logging_steps=1, save_strategy="no")
    job.add_callback(callback := HuggingFaceCallback(job, every=None))
    log = job.log

    def planted(logs: dict[str, float], start_time: float | None = None) -> None:
        log(logs | ({"loss": float("nan")} if "loss" in logs and job.state.global_step > 4 else {}), start_time)

    monkeypatch.setattr(job, "log", planted)
    job.train()
    assert [(event.name, event.plateau.start) for event in callback.events] == [("no_number", 5)]


def test_a_run_that_is_resumed_goes_on_where_it_was(tmp_path: Path) -> None:
    def run(folder: Path, resume: str | None = None) -> Any:
        model = gpt2()
        patched = eureka.patch(model, "heat_treatment", total_steps=12)
        job = trainer(model, folder)
        job.add_callback(HuggingFaceCallback(job, every=4, patched=patched))
        job.train(resume_from_checkpoint=resume)
        patched.undo()
        callback = next(c for c in job.callback_handler.callbacks if isinstance(c, HuggingFaceCallback))
        return model, callback, patched

    whole = run(tmp_path / "whole")
    resumed = run(tmp_path / "again", str(tmp_path / "whole" / "checkpoint-6"))
    assert resumed[1].monitor.probe.steps == whole[1].monitor.probe.steps == 12
    assert [record.step for record in resumed[1].monitor.records] == [8]
    assert resumed[2].steps.step == whole[2].steps.step == 12
    for one, other in zip(resumed[0].parameters(), whole[0].parameters(), strict=True):
        torch.testing.assert_close(one, other)
    for name, value in vars(whole[1].monitor.detector).items():
        assert getattr(resumed[1].monitor.detector, name) == pytest.approx(value), name


def test_the_trainers_own_way_to_restore_callbacks_is_refused(tmp_path: Path) -> None:
    trainer(gpt2(), tmp_path, max_steps=6).train()
    job = trainer(gpt2(), tmp_path)
    job.add_callback(HuggingFaceCallback(job))
    job.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    again = trainer(gpt2(), tmp_path, max_steps=14, restore_callback_states_from_checkpoint=True)
    again.add_callback(HuggingFaceCallback(again))
    with pytest.raises(RequestError, match="restores itself from a checkpoint"):
        again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-12"))


def test_without_the_trainer_scalars_go_into_the_log_history(tmp_path: Path) -> None:
    job = trainer(gpt2(), tmp_path, save_strategy="no")
    job.add_callback(HuggingFaceCallback(every=6))
    job.train()
    assert [line["step"] for line in job.state.log_history if any(key.startswith("attention/") for key in line)] == [0, 6]


def test_a_checkpoint_from_before_the_callback_can_be_resumed(tmp_path: Path) -> None:
    trainer(gpt2(), tmp_path, max_steps=6).train()
    job = trainer(gpt2(), tmp_path)
    job.add_callback(HuggingFaceCallback(job, every=3))
    job.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert (tmp_path / "checkpoint-12").is_dir()


def test_a_checkpoint_saved_without_the_callback_does_not_restart_the_schedule(tmp_path: Path) -> None:
    trainer(gpt2(), tmp_path, max_steps=6).train()
    model = gpt2()
    patched = eureka.patch(model, "heat_treatment", total_steps=12)
    job = trainer(model, tmp_path)
    job.add_callback(HuggingFaceCallback(job, every=None, patched=patched))
    steps: list[int] = []
    job.add_callback(_EachStep(lambda: steps.append(patched.steps.step)))
    job.train(resume_from_checkpoint=str(tmp_path / "checkpoint-6"))
    assert steps == [7, 8, 9, 10, 11, 12]


class _EachStep(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        self.call()


def test_a_trainer_that_compiles_its_model_trains_to_the_end(tmp_path: Path) -> None:
    model = gpt2()
    patched = eureka.patch(model, "norm_softmax")
    job = trainer(model, tmp_path, max_steps=4, save_strategy="no", torch_compile=True, torch_compile_backend="eager")
    job.add_callback(HuggingFaceCallback(job, every=2, patched=patched))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    job.train()
    assert job.state.global_step == 4
    assert len([line for line in job.state.log_history if "loss" in line]) == 2
    assert any(not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def rescued(folder: Path, mode: str) -> tuple[Any, Any]:
    """A short run with a plateau at its sixth step; the callback and the trained model."""

    class Plateau(transformers.TrainerCallback):  # type: ignore[misc, name-defined]
        def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
            if state.global_step == 6 and callback is not None and callback.monitor is not None:
                callback.monitor.rescue.at_plateau(600)

    model = gpt2()
    job = trainer(model, folder, save_strategy="no")
    callback = HuggingFaceCallback(job, every=None, rescue=mode) if mode else None
    if callback is not None:
        job.add_callback(callback)
    job.add_callback(Plateau())
    job.train()
    return callback, model


def test_a_rescue_that_only_races_leaves_the_trainers_run_bit_for_bit(tmp_path: Path) -> None:
    _, plain = rescued(tmp_path / "plain", "")
    callback, raced = rescued(tmp_path / "raced", "race")
    (record,) = callback.monitor.rescue.records
    assert not record.failed
    assert record.causes
    assert record.verdict
    assert all(torch.equal(a, b) for a, b in zip(plain.state_dict().values(), raced.state_dict().values(), strict=True))


def test_a_callback_that_rescues_needs_the_trainer() -> None:
    with pytest.raises(RequestError, match="needs the trainer"):
        HuggingFaceCallback(rescue="race")


def test_a_remedy_reaches_the_optimiser_of_the_trainer_before_and_after_training(tmp_path: Path) -> None:
    job = trainer(gpt2(), tmp_path, save_strategy="no")
    given = hand_over(job)
    assert given.adopt is not None
    undo = given.adopt()
    assert job.optimizer is given.trained_by
    undo()
    assert job.optimizer is None
    job.train()
    trained: Any = job.optimizer
    assert hand_over(job).trained_by is trained.optimizer


def test_a_loss_that_is_logged_too_rarely_for_a_plateau_is_told_once_when_training_begins(tmp_path: Path, caplog: Any) -> None:
    job = trainer(gpt2(), tmp_path, max_steps=40, logging_steps=10, save_strategy="no")
    job.add_callback(HuggingFaceCallback(job, every=None))
    with caplog.at_level(logging.WARNING, "eureka"):
        job.train()
    (said,) = [record.getMessage() for record in caplog.records if record.name == "eureka"]
    assert "every 10 steps: that takes about 800 steps, of 40 in all. logging_steps=1 " in said


@pytest.mark.parametrize(
    ("strategy", "every", "steps", "told"),
    [
        ("steps", 10, 600, "about 800 steps, of 600 in all. logging_steps=1 "),
        ("steps", 500, 30_000, "about 40,000 steps, of 30,000 in all. logging_steps=93 "),
        ("steps", 93, 30_000, ""),
        ("steps", 10, 1_600, ""),
        ("steps", 11, 1_600, "about 880 steps, of 1,600"),
        ("steps", 1, 20, ""),
        ("epoch", 500, 3_000, 'every 1,000 steps: that takes about 80,000 steps, of 3,000 in all. logging_strategy="steps" with'),
        ("no", 10, 600, "logs no loss"),
    ],
)
def test_how_late_a_plateau_is_told_depends_on_how_often_the_loss_is_logged(
    strategy: str, every: int, steps: int, told: str
) -> None:
    arguments: Any = SimpleNamespace(logging_strategy=transformers.trainer_utils.IntervalStrategy(strategy))
    state: Any = SimpleNamespace(max_steps=steps, logging_steps=every, num_train_epochs=3)
    said = told_late(arguments, state)
    assert told in said
    assert bool(said) == bool(told)
