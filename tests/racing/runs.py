"""Small real models, each with its batches, its loss and an optimiser that has stepped before."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import _global_optimizer_post_hooks

WORDS, TOKENS, BATCH = 16, 8, 16


@dataclass
class Run:
    """What a user hands over."""

    model: nn.Module
    batches: list[Any]
    loss: Callable[[nn.Module, Any], Tensor]
    optimizer: Optimizer

    def train(self, batch: Any) -> float:
        self.optimizer.zero_grad()
        loss = self.loss(self.model, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        return loss.item()


class Reader(nn.Module):
    """Embedding, learned positions, `nn.TransformerEncoder`, head; a buffer that counts calls and no `state_dict` holds."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.positions = nn.Parameter(0.02 * torch.randn(TOKENS, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, WORDS)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, words: Tensor) -> Tensor:
        self.calls += 1
        found: Tensor = self.head(self.layers(self.embed(words) + self.positions))
        return found


def words(count: int, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(0, WORDS, (BATCH, TOKENS), generator=generator) for _ in range(count)]


def copying(model: nn.Module, batch: Tensor) -> Tensor:
    """The word to the left: every place must look at its neighbour."""
    return nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.roll(1, 1).flatten())


def same(model: nn.Module, batch: Tensor) -> Tensor:
    """The word itself, which is learned at once."""
    return nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())


def reader(lr: float = 1e-3, loss: Callable[[nn.Module, Any], Tensor] = copying, batches: int = 12, dropout: float = 0.1) -> Run:
    torch.manual_seed(0)
    model = Reader(dropout)
    return _stepped(Run(model, words(batches), loss, torch.optim.AdamW(model.parameters(), lr=lr)))


def gpt2() -> Run:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=WORDS, n_positions=TOKENS, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    model.train()
    loss: Callable[[Any, Any], Tensor] = lambda model, batch: model(input_ids=batch, labels=batch).loss  # noqa: E731
    return _stepped(Run(model, words(12), loss, torch.optim.AdamW(model.parameters(), lr=1e-3)))


def ours() -> Run:
    from eureka.experiment import build
    from eureka.recipes import recipe

    config = recipe("tiles").but({"model.dim": 16, "model.depth": 1, "task.features": 8})
    task, model = build(config)
    generator = torch.Generator().manual_seed(0)
    batches = [task.sample(16, generator, "train") for _ in range(12)]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return _stepped(Run(model, batches, lambda model, batch: task.loss(model(batch.inputs), batch), optimizer))


def convolutions(lr: float = 1e-2) -> Run:
    """No attention, no positions; batch norm has buffers."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(4))
    generator = torch.Generator().manual_seed(0)
    batches = [torch.randn(8, 1, 6, 6, generator=generator) for _ in range(12)]
    model(batches[0])
    loss: Callable[[Any, Any], Tensor] = lambda model, batch: model(batch).square().mean()  # noqa: E731
    return _stepped(Run(model, batches, loss, torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)))


def _stepped(run: Run) -> Run:
    for batch in run.batches[:3]:
        run.train(batch)
    return run


RUNS: dict[str, Callable[[], Run]] = {"torch.nn": reader, "GPT-2": gpt2, "ours": ours, "no attention": convolutions}


def everything(run: Run) -> dict[str, Any]:
    """All that must be bit-equal afterwards."""
    model, optimizer = run.model, run.optimizer
    return copy.deepcopy(
        {
            "tensors": {name: tensor.detach() for name, tensor in [*model.named_parameters(), *model.named_buffers()]},
            "gradients": {name: parameter.grad for name, parameter in model.named_parameters()},
            "optimiser": optimizer.state_dict(),
            "modes": [module.training for module in model.modules()],
            "classes": [type(module).__qualname__ for module in model.modules()],
            "attributes": [sorted(module.__dict__) for module in model.modules()],
            "hooks": [(len(m._forward_hooks), len(m._forward_pre_hooks), len(m._backward_hooks)) for m in model.modules()],
            "optimiser hooks": [len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks)],
            "step": sorted(optimizer.__dict__),
            "all optimisers": len(_global_optimizer_post_hooks),
            "torch": torch.get_rng_state(),
            "numpy": str(np.random.get_state()),
            "python": random.getstate(),
        }
    )


def assert_equal(one: Any, other: Any, where: str = "") -> None:
    """Bit for bit."""
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_equal(one[key], other[key], f"{where}/{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal(a, b, f"{where}/{index}")
    elif isinstance(one, Tensor):
        assert one.dtype == other.dtype, where
        assert torch.equal(one, other), where
    else:
        assert one == other, where
