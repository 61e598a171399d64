"""A callback for the Trainer of transformers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from eureka.curves.online import Event
from eureka.errors import MissingExtraError, RequestError
from eureka.forks.setup import hand_over
from eureka.integrations.monitor import Monitor, Scalars
from eureka.integrations.rescue import LOGGER, SHARE, as_mode
from eureka.patching.patch import Patched

if TYPE_CHECKING:
    from torch import nn
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_callback import ExportableState
else:
    try:
        from transformers import TrainerCallback
        from transformers.trainer_callback import ExportableState
    except ImportError:
        raise MissingExtraError("transformers", "hf") from None

VALUES = 80
"""A plateau is told after about so many logged losses (the median of `eureka.curves.online.OnlineDetector`)."""


class HuggingFaceCallback(TrainerCallback, ExportableState):
    """Logs plateaus and Eureka-moments of the loss, and attention at an interval, through the trainer's own loggers.

        trainer = Trainer(model, arguments, train_dataset=…)
        trainer.add_callback(HuggingFaceCallback(trainer, every=50))
        trainer.train()

    It takes the loss as often as the trainer logs it (``logging_steps``), and tells a plateau after about 80 logged values: where
    that is late, it says so when training begins. Its state is saved with the trainer's checkpoints and restored when training
    resumes.

    Args:
        trainer: the trainer whose loggers are used; without it scalars go into the log history only
        every: steps between two probes of the attention; None for none
        patched: a patch whose schedule is saved and restored with the callback
        on_event: called with every event
        per_layer: log every measure of every layer; otherwise their means
        rescue: what to do at a plateau: "off", "advise", "race" or "apply" (see `Monitor`); it needs `trainer`. "apply"
            writes the checkpoint from before into the trainer's output folder
        share: of the steps made so far that a race may take, over all its forks; a plateau that comes too early for one is
            raced later, if it lasts
    """

    def __init__(
        self,
        trainer: Trainer | None = None,
        *,
        every: int | None = 50,
        patched: Patched | None = None,
        on_event: Callable[[Event], None] | None = None,
        per_layer: bool = False,
        rescue: str = "off",
        share: float = SHARE,
        restored: bool = False,
    ) -> None:
        if restored:  # the trainer would replace this object by one without trainer and patch
            raise RequestError(
                "this callback restores itself from a checkpoint; leave restore_callback_states_from_checkpoint off."
            )
        if as_mode(rescue) != "off" and trainer is None:
            raise RequestError(f'rescue="{rescue}" needs the trainer: HuggingFaceCallback(trainer, rescue=…).')
        self.trainer, self.every, self.patched, self.on_event = trainer, every, patched, on_event
        self.per_layer, self.rescue, self.share = per_layer, rescue, share
        self.monitor: Monitor | None = None
        self._state: TrainerState | None = None

    @property
    def events(self) -> list[Event]:
        """The events so far."""
        return [] if self.monitor is None else self.monitor.events

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: nn.Module | None = None, **rest: Any
    ) -> None:
        assert model is not None
        self._state = state
        if state.is_world_process_zero and (late := told_late(args, state)):
            LOGGER.warning("%s", late)
        self.monitor = Monitor(
            model,
            every=self.every,
            patched=self.patched,
            log=self._log,
            on_event=self.on_event,
            per_layer=self.per_layer,
            rescue=self.rescue,
            given=lambda: hand_over(self.trainer),
            folder=args.output_dir,
            share=self.share,
        )
        stored: Any = state.stateful_callbacks
        name = type(self).__name__
        kept = stored.get(name)
        saved = kept["attributes"]["saved"] if isinstance(kept, dict) else None
        if name not in stored:  # the trainer saves only what is in here
            stored[name] = self.state()
        if saved is not None and state.global_step > 0:
            self.monitor.load_state_dict(saved)
        elif self.patched is not None and state.global_step > 0:  # the checkpoint was saved without this callback
            self.patched.load_state_dict({"step": state.global_step})

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Scalars | None = None, **rest: Any
    ) -> None:
        if self.monitor is not None and logs is not None and "loss" in logs:
            self.monitor.update(state.global_step, float(logs["loss"]))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        if self.monitor is not None:
            self.monitor.close()

    def state(self) -> dict[str, Any]:
        """The state that the trainer saves in its checkpoints."""
        return {"args": {"restored": True}, "attributes": {"saved": self.monitor.state_dict() if self.monitor else None}}

    def _log(self, scalars: Scalars, step: int) -> None:
        if self.trainer is not None:
            self.trainer.log(dict(scalars))
        elif self._state is not None:
            self._state.log_history.append({**scalars, "step": step})


def told_late(args: TrainingArguments, state: TrainerState) -> str:
    """What to say where the loss is logged so rarely that a plateau shows only in the second half of training; else nothing."""
    steps, strategy = int(state.max_steps), str(getattr(args.logging_strategy, "value", args.logging_strategy))
    if strategy == "no":
        return 'The Trainer logs no loss (logging_strategy="no"), so neither plateaus nor Eureka-moments can be told.'
    every = int(state.logging_steps) if strategy == "steps" else math.ceil(steps / max(state.num_train_epochs, 1))
    better = max(steps // (4 * VALUES), 1)
    if every <= better or 2 * VALUES * every <= steps:
        return ""
    setting = f"logging_steps={better}" if strategy == "steps" else f'logging_strategy="steps" with logging_steps={better}'
    return (
        f"A plateau is told after about {VALUES} logged losses. The Trainer logs one every {every:,} steps: that takes about"
        f" {VALUES * every:,} steps, of {steps:,} in all. {setting} tells it sooner."
    )
