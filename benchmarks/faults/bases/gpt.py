"""Causal transformers that continue a chain of tokens."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.faults.bases.optimiser import BATCHES, optimiser
from benchmarks.faults.data.chain import chain
from benchmarks.faults.models.gpt import GPT
from benchmarks.faults.setup import Base, Draw, Setup


def next_token_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, labels = batch
    return F.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())


def _language(
    draw: Draw,
    *,
    name: str,
    lr: float,
    shares: tuple[float, float] = (0.75, 0.15),
    depth: int = 2,
    vocabulary: int | None = None,
    **model: Any,
) -> Setup:
    length, size = draw.pick(16, 20, 24), draw.pick(24, 32)
    vocabulary = vocabulary or draw.pick(12, 16, 20)
    task = chain(vocabulary, draw.generator, shares=shares)
    made = GPT(vocabulary, length, depth=depth, **{"dim": 32, **model})
    sequences = [task.sample(size, length + 1, draw.generator) for _ in range(BATCHES)]
    return Setup(
        made,
        [(tokens[:, :-1], tokens[:, 1:]) for tokens in sequences],
        next_token_loss,
        optimiser(made, name, draw.near(lr)),
        task.score(lambda model, tokens: model(tokens), length, draw.generator),
    )


def adamw(draw: Draw, **options: Any) -> Setup:
    return _language(draw, name="adamw", **{"lr": 4e-3, **options})


def sgd(draw: Draw, **options: Any) -> Setup:
    return _language(draw, name="sgd", **{"lr": 0.2, **options})


def last_token(draw: Draw, **options: Any) -> Setup:
    """The next token follows from the last alone: positions are of no use."""
    return _language(draw, name="adamw", lr=4e-3, shares=(0.0, 0.9), **options)


PADDING = 0


def left_padded(draw: Draw, **model: Any) -> Setup:
    """Sequences of different length, padded on the left, as for generation in batches."""
    length, size = draw.pick(20, 24), 32
    task = chain(draw.pick(13, 17), draw.generator, first=1)
    made = GPT(task.vocabulary, length, **{"dim": 32, "pad": PADDING, **model})

    def padded(tokens: Tensor) -> tuple[Tensor, Tensor]:
        real = torch.randint(4, tokens.shape[1] + 1, (len(tokens), 1), generator=draw.generator)
        tokens = tokens.masked_fill(torch.arange(tokens.shape[1]) < tokens.shape[1] - real, PADDING)
        return tokens[:, :-1], tokens[:, 1:].masked_fill(tokens[:, :-1] == PADDING, -100)

    def ending(model: nn.Module, tokens: Tensor) -> Tensor:
        """The model continues the last six tokens; all before them is padding."""
        return model(tokens.masked_fill(torch.arange(tokens.shape[1]) < tokens.shape[1] - 6, PADDING))  # type: ignore[no-any-return]

    batches = [padded(task.sample(size, length + 1, draw.generator)) for _ in range(BATCHES)]
    score = task.score(ending, length, draw.generator)
    return Setup(made, batches, next_token_loss, optimiser(made, "adamw", draw.near(4e-3)), score)


GPT_ADAMW = Base("gpt adamw", "gpt", adamw)
GPT_SGD = Base("gpt sgd", "gpt", sgd)
GPT_LAST = Base("gpt last token", "gpt", last_token)
GPT_PADDED = Base("gpt left-padded", "gpt", left_padded)
