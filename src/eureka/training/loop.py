"""The training loop: it trains any model on any task and writes a run folder."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch import Generator, Tensor, nn

from eureka.runs import Metrics, RecordLog, RunFolder, Status
from eureka.tasks.task import Batch, Split, Task
from eureka.training.attention_log import AttentionLog
from eureka.training.checkpoint import load_checkpoint, save_checkpoint
from eureka.training.config import TrainingConfig
from eureka.training.fitting import misfit
from eureka.training.optimiser import QueryKeyRate, learning_rate, make_optimiser, set_learning_rate
from eureka.training.progress import Progress
from eureka.training.replicas import Replicas, join_replicas, map_batch
from eureka.training.signals import Interrupted, StopRequest
from eureka.training.tensorboard import TensorBoardLog

VALIDATION_SEED = 20_240_610  # the same validation samples for every run of a task
DIVERGED = 1_000  # above every signal number: processes agree on the larger of the two


class Loop:
    """One run, from its last checkpoint to its end.

    digest   of the config: a checkpoint of another one is not gone on from
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        config: TrainingConfig,
        folder: RunFolder,
        on_log: Callable[[Metrics], None] | None = None,
        replicas: Replicas | None = None,
        digest: str = "",
    ) -> None:
        self.digest = digest
        self.model, self.task, self.config, self.folder = model.to(config.device), task, config, folder
        self.listeners: list[Callable[[Metrics], None]] = [on_log] if on_log else []
        self.replicas = replicas or join_replicas(config.batch_size, config.device)
        self.forward = self.replicas.wrap(self.model)
        self.operators: list[Any] = [module for module in model.modules() if callable(getattr(module, "advance", None))]
        self.optimiser = make_optimiser(self.model, config)
        self.query_key = QueryKeyRate(self.model, config.qk_lr_scale)
        self.rate = learning_rate(config)
        self.generator = Generator().manual_seed(config.seed)
        self.validation = self._sample(config.validation_samples, Generator().manual_seed(VALIDATION_SEED), "validation")
        self.levels = task.levels(config.label_smoothing)
        self.progress = Progress(RecordLog(folder.metrics_file, self.replicas.first), self.levels, config.device)
        self.attention = AttentionLog(self.model, config, folder, self.validation.inputs[:1], self.replicas.first)
        self.step, self.seconds = 0, 0.0

    def run(self) -> Status:
        """Train until the end, an early stop or divergence; `Interrupted` after a signal."""
        self._resume()
        with StopRequest() as stop, self._tensorboard(), self.attention.measuring(self.step):
            started = time.perf_counter()
            while (status := self._ended()) is None:
                finite = self._step_and_log()
                wish = self.replicas.agree(DIVERGED if not finite else stop.signum or 0)
                if wish == DIVERGED:
                    return "diverged"
                now = time.perf_counter()
                self.seconds, started = self.seconds + now - started, now
                if wish or self._is_time_for(self.config.checkpoint_every) or self._ended():
                    self._save()
                if wish and not self._ended():
                    raise Interrupted(wish, self.step)
            self._advance()
            self.attention.draw(self.step)
            return status

    def _step_and_log(self) -> bool:
        """One step, and a line if it is time for one; whether the losses are finite. A decomposition that fails has diverged."""
        try:
            return self.train_step() and (not self._is_time_for(self.config.log_every) or self.log())
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            return False

    def train_step(self) -> bool:
        """One step; whether its loss is finite."""
        set_learning_rate(self.optimiser, self.rate(self.step))
        self._advance()
        self.attention.step_begins(self.step)
        batch = self.replicas.share(self._sample(self.config.batch_size, self.generator, "train"))
        self.attention.show(self.task, batch)
        with self._precision():
            outputs = self.forward(batch.inputs)
            loss = self.task.loss(outputs, batch, self.config.label_smoothing)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.attention.step_ends()
        with self.query_key.around_step():
            self.optimiser.step()
        self.step += 1
        self.progress.add(loss.detach(), self.task.accuracy(outputs.detach(), batch))
        return math.isfinite(loss.item())

    def _advance(self) -> None:
        """Tell scheduled operators the step."""
        for operator in self.operators:
            operator.advance(self.step)

    def log(self) -> bool:
        """Validate and write a line of metrics; whether the loss is finite."""
        train_loss, train_accuracy = map(self.replicas.mean, self.progress.means())
        loss, accuracy = self.validate()
        line = Metrics(self.step, train_loss.item(), train_accuracy.item(), loss, accuracy, self.rate(self.step - 1))
        self.progress.record(line)
        for listener in self.listeners:
            listener(line)
        return math.isfinite(loss)

    @torch.no_grad()
    def validate(self) -> tuple[float, float]:
        """Loss and accuracy on the validation samples."""
        self.model.eval()
        with self._precision():
            outputs = torch.cat([self.model(part) for part in torch.split(self.validation.inputs, self.config.batch_size)])
            loss = self.task.loss(outputs, self.validation, self.config.label_smoothing)
        self.model.train()
        return loss.item(), self.task.accuracy(outputs, self.validation).item()

    def _is_time_for(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.config.steps

    def _ended(self) -> Status | None:
        leap = self.progress.leap
        if self.config.early_stop and leap and self.step >= leap.step + self.config.early_stop_after:
            return "stopped_early"
        return "finished" if self.step >= self.config.steps else None

    @contextlib.contextmanager
    def _tensorboard(self) -> Iterator[None]:
        if not (self.config.tensorboard and self.replicas.first):
            yield
            return
        log = TensorBoardLog(self.folder.path, self.step)
        self.listeners.append(lambda line: log.add(line.step, {key: v for key, v in asdict(line).items() if key != "step"}))
        self.attention.listeners.append(lambda record: log.add(record.step, record.scalars()))
        try:
            yield
        finally:
            log.close()

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.config.device, torch.bfloat16)

    def _sample(self, n: int, generator: Generator, split: Split) -> Batch:
        batch = self.task.sample(n, generator, split)
        if self.config.device == "cpu":
            return batch
        move: Callable[[Tensor], Tensor] = lambda tensor: tensor.to(self.config.device, non_blocking=True)  # noqa: E731
        return map_batch(batch, move)

    def _save(self) -> None:
        if not self.replicas.first:
            return
        state = {
            "run": self.digest,
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "data_generator": self.generator.get_state(),
            "torch_generator": torch.get_rng_state(),
            "progress": self.progress.state(),
            "attention": self.attention.state(),
        }
        save_checkpoint(self.folder.checkpoints, self.step, state, self.progress.onset())

    def _resume(self) -> None:
        state = load_checkpoint(self.folder.checkpoints, self._misfit)
        self.progress.resume(state["progress"] if state else None)
        self.attention.resume(state.get("attention") if state else None)
        if state is None:
            return
        self.step, self.seconds = state["step"], state["seconds"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.generator.set_state(state["data_generator"])
        torch.set_rng_state(state["torch_generator"])

    def _misfit(self, state: dict[str, Any], step: int) -> str | None:
        return misfit(state, self.digest, step, self.config.steps, self.model, self.optimiser)
