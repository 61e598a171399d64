"""AdamW as transformers are trained with it, and its learning rate."""

from __future__ import annotations

from torch import nn, optim

from eureka.schedules import Schedule, constant, cosine_ramp, warm_up
from eureka.training.config import TrainingConfig


def make_optimiser(model: nn.Module, config: TrainingConfig) -> optim.AdamW:
    """AdamW; 1-d parameters and what the model calls `undecayed` (positions, class token) are exempt from weight decay."""
    exempt: frozenset[str] = getattr(model, "undecayed", frozenset())
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (kept if parameter.ndim < 2 or name in exempt else decayed).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": kept, "weight_decay": 0.0}]
    return optim.AdamW([group for group in groups if group["params"]], lr=config.lr)


def learning_rate(config: TrainingConfig) -> Schedule:
    """The learning rate at each step."""
    rest = config.steps - config.warmup
    after = constant(config.lr) if config.schedule == "constant" else cosine_ramp(config.lr, config.final_lr, rest)
    return warm_up(after, config.warmup)


def set_learning_rate(optimiser: optim.Optimizer, rate: float) -> None:
    """The same rate for all parameters."""
    for group in optimiser.param_groups:
        group["lr"] = rate
