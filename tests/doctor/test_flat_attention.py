"""Flat attention is told with what NormSoftmax does to the gradients, which is advised only where it gives more of them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.doctor.attention_state import AttentionState
from eureka.doctor.checks import attention
from eureka.doctor.checks.attention import ratio_of_flattest
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Finding
from eureka.forks.case import make_case

Batch = tuple[Tensor, Tensor]
TOKENS, DECIDING = 16, [3, 7, 11]


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.content, self.positions = nn.Embedding(2, 32), nn.Parameter(0.02 * torch.randn(TOKENS, 32))
        self.block, self.head = nn.TransformerEncoderLayer(32, 2, 64, 0.0, batch_first=True), nn.Linear(32, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        mixed: Tensor = self.block(self.content(tokens) + self.positions)
        logits: Tensor = self.head(mixed.mean(dim=1))
        return logits


def parity() -> Batch:
    tokens = torch.randint(2, (48, TOKENS))
    return tokens, tokens[:, DECIDING].sum(dim=1) % 2


def loss(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def flat(logits: float, lr: float, seed: int = 1) -> Finding:
    """What is said about a run of 120 steps whose W_Q and W_K began at `logits` times their size."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    batches, model = [parity() for _ in range(24)], Encoder()
    with torch.no_grad():
        model.block.self_attn.in_proj_weight[:64] *= logits
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for _ in range(120):
        optimizer.zero_grad()
        loss(model, parity()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    (found,) = attention.check(Exam(make_case(model, batches, loss=loss, optimizer=optimizer, step=None, most=24)))
    assert found.cause == "attention_flat"
    return found


def shares(found: Finding) -> list[float]:
    words = found.evidence[1].replace(",", "").split()
    return [float(words[words.index("get") + 1]), float(words[words.index("with") - 1])]


def test_norm_softmax_is_advised_where_it_gives_more_gradient_to_queries_and_keys() -> None:
    found = flat(logits=0.1, lr=1e-5)
    before, after = shares(found)
    assert after > 3 * before
    assert "norm_softmax" in found.code
    assert found.sure == pytest.approx(0.7)


def test_norm_softmax_is_not_advised_where_it_gives_no_more() -> None:
    found = flat(logits=1.0, lr=1e-3)
    before, after = shares(found)
    assert after < before / 3
    assert found.code == ""
    assert found.sure < 0.6
    assert "no more at once" in found.evidence[1]
    assert "about " in found.evidence[0]
    assert "e+" not in found.evidence[0]


def state(*ratio: float) -> AttentionState:
    one = [1.0] * len(ratio)
    return AttentionState(entropy=one, near_one_hot=one, spread=one, ratio=list(ratio), hand_written=False)


def test_the_layer_that_gets_the_least_is_compared_with_itself() -> None:
    assert ratio_of_flattest(state(0.3, 0.1, 0.2), state(0.05, 0.9, 0.4)) == 0.9
    assert ratio_of_flattest(state(0.3, 0.1), state(0.5)) == 0.5  # a layer was not seen again
