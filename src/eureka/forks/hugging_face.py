"""A Trainer of transformers as a case: its own training step, on a copy of the trainer that logs and saves nothing."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from eureka.errors import RequestError
from eureka.forks.accumulated import Accumulated
from eureka.forks.quiet import Quiet, copied
from eureka.forks.rates import at_lasting_rates, bare_copy
from eureka.forks.setup import Setup

SHARED = ("model", "model_wrapped", "args", "processing_class", "train_dataset", "eval_dataset", "optimizer", "lr_scheduler")
"""What the copy of a trainer shares with it; the rest is copied, or silent."""
SILENT = ("callback_handler", "log", "save_model", "push_to_hub", "_save_checkpoint", "evaluate", "predict")


def from_trainer(trainer: Any, batches: Any, log: Any) -> Setup:
    """The trainer as it is now, before, during or after `train()`; nothing of it is changed."""
    if getattr(trainer, "is_deepspeed_enabled", False) or getattr(trainer, "is_fsdp_enabled", False):
        raise RequestError(
            "this Trainer runs with DeepSpeed or FSDP, and its model cannot be copied; diagnose it in one process."
        )
    if trainer.model is None:
        raise RequestError("this Trainer has no model yet (model_init makes one in train()); pass it a model.")
    quiet = _quiet_copy(trainer)
    loader = batches if batches is not None else _loader(quiet)
    accumulated = max(int(trainer.args.gradient_accumulation_steps), 1)
    own = _bare(trainer.optimizer) or _bare(quiet.create_optimizer())
    optimizer, notes = _at_lasting_rates(trainer, quiet, own, loader, accumulated)
    if trainer.args.fp16:
        notes = (*notes, "The loss scaling of fp16 is left out of the experiments.")
    return Setup(
        model=trainer.model,
        batches=Accumulated(loader, accumulated),
        step=TrainerStep(quiet),
        optimizer=optimizer,
        log=_losses(trainer) if log is None else log,
        notes=notes,
        own_optimizer=own,
        adopt=partial(_adopt, trainer, own),
        rate_by_hand=_rate_by_hand(trainer),
        decay_by_hand=_decay_by_hand(trainer),
        parameters_by_hand=_parameters_by_hand(trainer),
    )


def _rate_by_hand(trainer: Any) -> str:
    """How the rate is changed before, during or after `train()`, which makes an optimiser once and a scheduler each time."""
    groups = "trainer.optimizer.param_groups"
    if trainer.optimizer is None:
        if "create_optimizer" not in _overridden(trainer):
            return "trainer.args.learning_rate {change}  # before train()"
        groups = "trainer.create_optimizer().param_groups"
    elif hasattr(trainer.lr_scheduler, "base_lrs"):
        own = "group['lr'] {change}; group['initial_lr'] {change}"
        return f"for i, group in enumerate({groups}): {own}; trainer.lr_scheduler.base_lrs[i] {{change}}"
    return f"for group in {groups}: group['lr'] {{change}}  # before train()"


def _decay_by_hand(trainer: Any) -> str:
    """How the weight decay is lowered; a trainer gives none to biases and norms, and they keep that."""
    if trainer.optimizer is None and "create_optimizer" not in _overridden(trainer):
        return "trainer.args.weight_decay = {value}  # before train()"
    groups = "trainer.optimizer.param_groups" if trainer.optimizer is not None else "trainer.create_optimizer().param_groups"
    return f"for group in {groups}: group['weight_decay'] = min(group['weight_decay'], {{value}})"


def _parameters_by_hand(trainer: Any) -> str:
    """How the optimiser gets what it lacks: in a group that it has, as a scheduler knows no others."""
    made = "trainer.optimizer" if trainer.optimizer is not None else "trainer.create_optimizer()"
    return (
        f"groups = {made}.param_groups; known = {{id(p) for group in groups for p in group['params']}};"
        " groups[0]['params'] += [p for p in trainer.model.parameters() if id(p) not in known]"
    )


def _adopt(trainer: Any, optimizer: Optimizer) -> Callable[[], None]:
    """A trainer that has not begun makes no optimiser of its own if it has one."""
    if trainer.optimizer is not None:
        return lambda: None
    trainer.optimizer = optimizer

    def undo() -> None:
        if _bare(trainer.optimizer) is optimizer:
            trainer.optimizer = None

    return undo


def _losses(trainer: Any) -> list[float] | None:
    """The training loss that the trainer has logged."""
    found = [float(line["loss"]) for line in trainer.state.log_history if "loss" in line]
    return found if len(found) > 1 else None


def _quiet_copy(trainer: Any) -> Any:
    """Another trainer of the same class, whose state can be changed and whose callbacks and accelerator are not asked."""
    quiet = copy.copy(trainer)
    for name, value in vars(trainer).items():
        if name not in (*SHARED, *SILENT, "accelerator", "data_collator"):
            setattr(quiet, name, _memory(value, trainer))
    for name in SILENT:
        setattr(quiet, name, Quiet())
    quiet.accelerator = PlainAccelerator(trainer.accelerator)
    quiet.autocast_smart_context_manager = lambda *args, **kwargs: trainer.accelerator.autocast()
    return quiet


def _memory(value: Any, trainer: Any) -> Any:
    """A copy of what a trainer may remember things in; functions, and what is bound to the trainer, stay as they are."""
    shared = value is trainer.model or (callable(value) and not isinstance(value, nn.Module))
    return value if shared else copied(value)


class PlainAccelerator:
    """Places nothing and remembers nothing; whatever else is asked, the real one answers."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def prepare(self, *things: Any, **_: Any) -> Any:
        return things[0] if len(things) == 1 else things

    prepare_data_loader = prepare

    def backward(self, loss: Tensor, **_: Any) -> None:
        loss.backward()  # type: ignore[no-untyped-call]

    def clip_grad_norm_(self, parameters: Iterable[Tensor], max_norm: float, norm_type: int = 2) -> Tensor:
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type=norm_type)

    def no_sync(self, model: nn.Module) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def accumulate(self, *models: nn.Module) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()


def _loader(quiet: Any) -> Any:
    if quiet.train_dataset is None and "get_train_dataloader" not in _overridden(quiet):
        raise RequestError("this Trainer has no train_dataset; give it one, or pass batches: diagnose(trainer, batches).")
    return quiet.get_train_dataloader()


def _overridden(trainer: Any) -> set[str]:
    """Names that a subclass of the user's defines."""
    return {name for cls in type(trainer).__mro__ if not cls.__module__.startswith("transformers") for name in vars(cls)}


def _at_lasting_rates(
    trainer: Any, quiet: Any, optimizer: Optimizer, loader: Any, accumulated: int
) -> tuple[Optimizer, tuple[str, ...]]:
    """The optimiser as it is, or another over the same parameters and state at a rate that lasts."""
    steps = int(trainer.state.max_steps) or _steps(trainer.args, loader, accumulated)
    scheduler = _bare(trainer.lr_scheduler, "scheduler")
    if scheduler is None and steps > 0:
        scheduler = _bare(quiet.create_scheduler(steps, optimizer=bare_copy(optimizer)), "scheduler")
    return at_lasting_rates(optimizer, scheduler, steps)


def _bare(wrapped: Any, name: str = "optimizer") -> Any:
    """Without what accelerate puts around it."""
    return getattr(wrapped, name) if type(wrapped).__module__.startswith("accelerate") else wrapped


def _steps(arguments: Any, loader: Any, accumulated: int) -> int:
    if arguments.max_steps > 0:
        return int(arguments.max_steps)
    try:
        return max(int(arguments.num_train_epochs * (len(loader) // accumulated)), 1)
    except TypeError:  # a stream has no length
        return 0


class TrainerStep:
    """What the trainer's loop does in one step of the optimiser, but for its scheduler, callbacks and logs."""

    def __init__(self, quiet: Any) -> None:
        self.quiet = quiet

    def __call__(self, model: nn.Module, optimizer: Optimizer, batch: Any) -> Tensor:
        quiet = self.quiet
        quiet.model = quiet.model_wrapped = model
        quiet.optimizer = optimizer
        micro = batch if isinstance(batch, list) else [batch]
        micro, items = quiet.get_batch_samples(iter(micro), len(micro), quiet.args.device)
        quiet.current_gradient_accumulation_steps = len(micro)
        model.zero_grad()
        loss = sum(quiet.training_step(model, dict(one) if isinstance(one, Mapping) else one, items) for one in micro)
        if quiet.args.max_grad_norm and quiet.args.max_grad_norm > 0:
            quiet.accelerator.clip_grad_norm_(model.parameters(), quiet.args.max_grad_norm)
        optimizer.step()
        return torch.as_tensor(loss)
