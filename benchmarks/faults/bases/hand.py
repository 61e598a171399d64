"""Models with attention written by hand."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.faults.bases.gpt import next_token_loss
from benchmarks.faults.bases.optimiser import BATCHES, optimiser
from benchmarks.faults.bases.vit import class_loss
from benchmarks.faults.data.chain import chain
from benchmarks.faults.data.masked import masked
from benchmarks.faults.data.rows import PAD, rows
from benchmarks.faults.data.scores import scorer
from benchmarks.faults.models.hand import HandModel
from benchmarks.faults.setup import Base, Draw, Setup


def causal(draw: Draw, *, name: str = "adamw", lr: float = 3e-3, length: int | None = None, **model: Any) -> Setup:
    """Continues a chain of tokens; einsum."""
    vocabulary, length = draw.pick(14, 18), length or draw.pick(16, 20)
    task = chain(vocabulary, draw.generator)
    made = HandModel(vocabulary, length, vocabulary, **{"causal": True, "writing": "einsum", **model})
    sequences = [task.sample(32, length + 1, draw.generator) for _ in range(BATCHES)]
    score = task.score(lambda model, tokens: model(tokens), length, draw.generator)
    batches = [(tokens[:, :-1], tokens[:, 1:]) for tokens in sequences]
    return Setup(made, batches, next_token_loss, optimiser(made, name, draw.near(lr)), score)


def cloze(draw: Draw, **model: Any) -> Setup:
    """Fills in hidden tokens; matrix products."""
    task = masked(draw.pick(10, 14), draw.pick(10, 12), draw.generator)
    made = HandModel(task.vocabulary, task.length, task.vocabulary, **{"writing": "matmul", **model})
    batches = [task.sample(48, draw.generator) for _ in range(BATCHES)]
    score = task.score(lambda model, tokens: model(tokens), draw.generator)
    return Setup(made, batches, next_token_loss, optimiser(made, "adamw", draw.near(3e-3)), score)


def padded(draw: Draw, *, classes: int = 2, **model: Any) -> Setup:
    """Classifies padded rows of tokens; a function of its own for attention."""
    task = rows(classes, draw.pick(4, 5), draw.pick(24, 28), draw.generator)
    made = HandModel(classes, task.length, task.vocabulary, **{"writing": "function", "pooled": True, "pad": PAD, **model})
    samples = [task.sample(32, draw.generator) for _ in range(BATCHES)]
    score = task.score(lambda model, tokens, _real: model(tokens), draw.generator)
    batches = [(tokens, labels) for tokens, _, labels in samples]
    return Setup(made, batches, class_loss, optimiser(made, "sgd", draw.near(0.03)), score)


def buffers(draw: Draw, *, masked: bool = True, **model: Any) -> Setup:
    """The same with stale tokens where padding is, and a mask in the batch; `masked` hands it to the model."""
    task = rows(2, draw.pick(4, 5), draw.pick(24, 28), draw.generator, stale=True)
    made = HandModel(2, task.length, task.vocabulary, **{"writing": "matmul", "pooled": True, **model})

    def outputs(model: nn.Module, tokens: Tensor, real: Tensor) -> Tensor:
        return model(tokens, real if masked else None)  # type: ignore[no-any-return]

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        tokens, real, labels = batch
        return F.cross_entropy(outputs(model, tokens, real), labels)

    batches = [task.sample(32, draw.generator) for _ in range(BATCHES)]
    return Setup(made, batches, loss, optimiser(made, "adamw", draw.near(2e-3)), task.score(outputs, draw.generator))


FEATURES = 6


def series(draw: Draw, *, regression: bool = False, size: int = 32, **model: Any) -> Setup:
    """Readings of six gauges over time, in units such as 400 ± 50; which of them rises most, or by how much does the first?"""
    length = draw.pick(12, 16)
    level = 200 + 400 * torch.rand(FEATURES, generator=draw.generator)

    def sample(n: int) -> tuple[Tensor, Tensor]:
        slope = torch.randn(n, FEATURES, generator=draw.generator)
        noise = torch.randn(n, length, FEATURES, generator=draw.generator)
        time = torch.linspace(-1, 1, length)[:, None]
        readings = level + 50 * (time * slope[:, None] + 0.3 * noise)
        return readings, slope[:, 0] if regression else slope.argmax(1)

    made = HandModel(1 if regression else FEATURES, length, features=FEATURES, **{"pooled": True, "batch": True, **model})
    held_out = sample(512)

    def right(model: nn.Module) -> Tensor:
        truth = held_out[1]
        out: Tensor = model(held_out[0])
        return 1 - (out[:, 0] - truth) ** 2 / truth.var() if regression else out.argmax(-1) == truth

    loss = slope_loss if regression else class_loss
    score = scorer(right, 0.0 if regression else 1 / FEATURES)
    return Setup(made, [sample(size) for _ in range(BATCHES)], loss, optimiser(made, "adamw", draw.near(2e-3)), score)


def slope_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]).squeeze(-1), batch[1])


HAND_CAUSAL = Base("hand causal", "hand", causal)
HAND_CLOZE = Base("hand cloze", "hand", cloze, 180)
HAND_PADDED = Base("hand padded sgd", "hand", padded)
HAND_BUFFERS = Base("hand buffers", "hand", buffers)
HAND_SERIES = Base("hand series", "hand", series)
