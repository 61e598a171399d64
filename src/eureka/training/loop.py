"""The training loop. It is given a model and a task and never asks which; what it writes is a run folder."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from eureka.runs import Record, RunFolder
from eureka.tasks import Batch, Task
from eureka.training.checkpoint import load_checkpoint, save_checkpoint
from eureka.training.config import TrainingConfig
from eureka.training.metrics import MetricsLog
from eureka.training.moment import Moment, Point, eureka_moment, find_moments
from eureka.training.optimiser import learning_rate, make_optimiser, set_learning_rate
from eureka.training.signals import Interrupted, StopRequest

Status = Literal["finished", "stopped_early", "diverged"]
VALIDATION_SEED = 20_240_610  # the same validation samples for every run of a task


class Loop:
    """One run, from its last checkpoint to its end."""

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainingConfig,
        folder: RunFolder,
        on_log: Callable[[Record], None] | None = None,
    ) -> None:
        self.model, self.task, self.config, self.folder = model.to(config.device), task, config, folder
        self.on_log = on_log or (lambda record: None)
        self.optimiser = make_optimiser(self.model, config)
        self.rate = learning_rate(config)
        self.generator = Generator().manual_seed(config.seed)
        self.validation = self._sample(config.validation_samples, Generator().manual_seed(VALIDATION_SEED), "validation")
        self.levels = task.levels(config.label_smoothing)
        self.step, self.seconds = 0, 0.0
        self.train_loss = torch.zeros((), device=config.device)
        self.train_accuracy = torch.zeros((), device=config.device)
        self.summed = 0
        self.log = MetricsLog(folder.metrics_file)
        self.moment: Moment | None = None

    def run(self) -> Status:
        """Train until the end, an early stop or divergence; `Interrupted` after a signal."""
        self._resume()
        with StopRequest() as stop:
            started = time.perf_counter()
            while True:
                if status := self._ended():
                    return status
                if not self._train_step():
                    return "diverged"
                if self.step % self.config.log_every == 0 or self.step == self.config.steps:
                    self._log()
                now = time.perf_counter()
                self.seconds, started = self.seconds + now - started, now
                if stop.signum is not None or self.step % self.config.checkpoint_every == 0 or self._ended():
                    self._save()
                if stop.signum is not None and not self._ended():
                    raise Interrupted(stop.signum, self.step)

    def _train_step(self) -> bool:
        set_learning_rate(self.optimiser, self.rate(self.step))
        self._advance()
        batch = self._sample(self.config.batch_size, self.generator, "train")
        outputs = self.model(batch.inputs)
        loss = self.task.loss(outputs, batch, self.config.label_smoothing)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self.step += 1
        self.train_loss += loss.detach()
        self.train_accuracy += self.task.accuracy(outputs.detach(), batch)
        self.summed += 1
        return math.isfinite(loss.item())

    def _log(self) -> None:
        loss, accuracy = self.validate()
        record: Record = {
            "step": self.step,
            "train_loss": self.train_loss.item() / self.summed,
            "train_accuracy": self.train_accuracy.item() / self.summed,
            "validation_loss": loss,
            "validation_accuracy": accuracy,
            "lr": self.rate(self.step - 1),
        }
        self.train_loss.zero_()
        self.train_accuracy.zero_()
        self.summed = 0
        self.log.append(record)
        self._look()
        self.on_log(record)

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Loss and accuracy on the validation samples, without label smoothing's influence on the model."""
        self.model.eval()
        outputs = torch.cat([self.model(part) for part in torch.split(self.validation.inputs, self.config.batch_size)])
        self.model.train()
        loss = self.task.loss(outputs, self.validation, self.config.label_smoothing)
        return loss.item(), self.task.accuracy(outputs, self.validation).item()

    def moments(self) -> list[Moment]:
        """The leaps so far, from level to level."""
        return find_moments(self._points(), self.levels)

    def _look(self) -> None:
        if self.moment is None:
            self.moment = eureka_moment(self._points(), self.levels)

    def _points(self) -> list[Point]:
        return [Point(r["step"], r["validation_loss"], r["validation_accuracy"]) for r in self.log.records]

    def _ended(self) -> Status | None:
        if self.config.early_stop and self.moment and self.step >= self.moment.step + self.config.early_stop_after:
            return "stopped_early"
        return "finished" if self.step >= self.config.steps else None

    def _advance(self) -> None:
        for module in self._operators():
            module.advance(self.step)

    def _operators(self) -> Iterator[Any]:
        return (module for module in self.model.modules() if hasattr(module, "advance"))

    def _sample(self, n: int, generator: Generator, split: Literal["train", "validation"]) -> Batch:
        batch = self.task.sample(n, generator, split)
        if self.config.device == "cpu":
            return batch
        move: Callable[[Tensor], Tensor] = lambda tensor: tensor.to(self.config.device, non_blocking=True)  # noqa: E731
        return Batch(move(batch.inputs), move(batch.labels), {name: move(step) for name, step in batch.steps.items()})

    def _save(self) -> None:
        state = {
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "data_generator": self.generator.get_state(),
            "torch_generator": torch.get_rng_state(),
            "sums": {"loss": self.train_loss, "accuracy": self.train_accuracy, "count": self.summed},
            "metrics_bytes": self.log.size,
        }
        save_checkpoint(self.folder.checkpoints, self.step, state)

    def _resume(self) -> None:
        state = load_checkpoint(self.folder.checkpoints)
        self.log.open(state["metrics_bytes"] if state else 0)
        if state is None:
            return
        self.step, self.seconds, self.summed = state["step"], state["seconds"], state["sums"]["count"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["data_generator"])
        torch.set_rng_state(state["torch_generator"])
        self.train_loss.copy_(state["sums"]["loss"])
        self.train_accuracy.copy_(state["sums"]["accuracy"])
        self._look()
