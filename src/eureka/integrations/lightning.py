"""A callback for the Trainer of Lightning."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from eureka.curves.online import Event
from eureka.errors import MissingExtraError
from eureka.forks.setup import Setup, hand_over
from eureka.integrations.monitor import Monitor, Scalars
from eureka.integrations.rescue import SHARE, as_mode
from eureka.patching.patch import Patched

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        raise MissingExtraError("lightning", "lightning") from None


class LightningCallback(Callback):
    """Logs plateaus and Eureka-moments of the loss, and attention at an interval, through the trainer's own loggers.

        callback = LightningCallback(every=50)
        trainer = Trainer(callbacks=[callback])
        trainer.fit(module, batches)

    Its state is saved with the trainer's checkpoints and restored when training resumes.

    Args:
        every: steps between two probes of the attention; None for none
        patched: a patch whose schedule is saved and restored with the callback
        on_event: called with every event
        per_layer: log every measure of every layer; otherwise their means
        rescue: what to do at a plateau: "off", "advise", "race" or "apply" (see `Monitor`). "apply" writes the checkpoint
            from before into the trainer's folder
        share: of the steps made so far that a race may take, over all its forks; a plateau that comes too early for one is
            raced later, if it lasts
    """

    def __init__(
        self,
        *,
        every: int | None = 50,
        patched: Patched | None = None,
        on_event: Callable[[Event], None] | None = None,
        per_layer: bool = False,
        rescue: str = "off",
        share: float = SHARE,
    ) -> None:
        self.every, self.patched, self.on_event = every, patched, on_event
        self.per_layer, self.rescue, self.share = per_layer, as_mode(rescue), share
        self.monitor: Monitor | None = None
        self._saved: dict[str, Any] | None = None
        self._waiting: list[tuple[Scalars, int]] = []

    @property
    def events(self) -> list[Event]:
        """The events so far."""
        return [] if self.monitor is None else self.monitor.events

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.monitor = Monitor(
            pl_module,
            every=self.every,
            patched=self.patched,
            log=lambda scalars, step: self._waiting.append((scalars, step)),
            on_event=self.on_event,
            per_layer=self.per_layer,
            rescue=self.rescue,
            given=lambda: _given(trainer, pl_module),
            folder=trainer.default_root_dir,
            share=self.share,
        )
        if self._saved is not None:
            self.monitor.load_state_dict(self._saved)
            self._saved = None
        elif self.patched is not None and trainer.ckpt_path is not None:  # the checkpoint was saved without this callback
            self.patched.load_state_dict({"step": trainer.global_step})

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if self.monitor is not None and isinstance(loss, Tensor):
            # Lightning divides the loss by the number of accumulated batches
            self.monitor.update(trainer.global_step, loss.item() * trainer.accumulate_grad_batches)
        self._flush(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._flush(trainer)
        if self.monitor is not None:
            self.monitor.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        if self.monitor is not None:
            self.monitor.close()

    def state_dict(self) -> dict[str, Any]:
        return self.monitor.state_dict() if self.monitor is not None else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict or None

    def _flush(self, trainer: Trainer) -> None:
        """Log the records that were made inside the optimiser's step, where Lightning takes no metrics."""
        for scalars, step in self._waiting:
            for logger in trainer.loggers:
                logger.log_metrics(scalars, step=step)
        self._waiting.clear()


def _given(trainer: Trainer, module: LightningModule) -> Setup:
    """The module as it is now, with the optimiser and the data that it is trained with."""
    return hand_over(module, trainer.train_dataloader, optimizer=trainer.optimizers[0])
