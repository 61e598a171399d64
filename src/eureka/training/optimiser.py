"""AdamW as transformers are trained with it, its learning rate, and a separate rate for W_Q and W_K."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn, optim

from eureka.errors import RequestError
from eureka.probes.projections import Projection, find_projections
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


class QueryKeyRate:
    """A control: W_Q and W_K learn at a multiple of the learning rate, everything else as before.

    AdamW's step is proportional to the learning rate, weight decay included, so the multiple is applied to the finished step.
    That also reaches the part of a fused qkv weight, which no parameter group can.
    """

    def __init__(self, model: nn.Module, scale: float) -> None:
        self.factors: dict[nn.Parameter, Tensor] = {}
        if scale == 1.0:
            return
        for site in find_projections(model):
            for letter in "qk":
                if letter in site:
                    self._slow_down(site[letter], scale)
        if not self.factors:
            raise RequestError(
                f"training.qk_lr_scale {scale:g}: this model has no W_Q and W_K that could be found; leave it at 1."
            )

    def _slow_down(self, projection: Projection, scale: float) -> None:
        parameter = projection.parameter
        factor = self.factors.setdefault(parameter, torch.ones_like(parameter))
        places = torch.arange(parameter.numel(), device=parameter.device).view_as(parameter)
        factor.view(-1)[projection.rows(places).flatten()] = scale

    @contextlib.contextmanager
    def around_step(self) -> Iterator[None]:
        """p ← before + factor · (after - before)."""
        before = [parameter.detach().clone() for parameter in self.factors]
        yield
        with torch.no_grad():
            for (parameter, factor), old in zip(self.factors.items(), before, strict=True):
                parameter.copy_(torch.lerp(old, parameter, factor))
