"""Rows that come sorted by label, labels that are all the same, and samplers that only look so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from scipy.stats import hypergeom
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam

import eureka
from eureka.doctor.checks.order import classes_in_a_sample
from eureka.doctor.finding import Diagnosis

Batches = list[tuple[Tensor, Tensor]]
ROWS, SIZE, CLASSES = 40 * 64, 64, 4


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, CLASSES))


class Transformer(nn.Module):
    """Eight numbers, a token each; a token of its own is read out."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.embed, self.head = nn.Linear(1, 32), nn.Linear(32, CLASSES)
        self.read_out, self.positions = nn.Parameter(torch.randn(1, 1, 32)), nn.Parameter(torch.randn(9, 32))
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.cat([self.read_out.expand(len(x), 1, -1), self.embed(x[..., None])], dim=1)
        out: Tensor = self.head(self.encoder(tokens + self.positions)[:, 0])
        return out


def rows() -> tuple[Tensor, Tensor]:
    x = torch.randn(ROWS, 8, generator=torch.Generator().manual_seed(0))
    return x, x[:, :CLASSES].argmax(dim=1)


def in_batches(order: Tensor) -> Batches:
    x, y = rows()
    return [(x[order[i : i + SIZE]], y[order[i : i + SIZE]]) for i in range(0, ROWS, SIZE)]


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def diagnosed(model: nn.Module, batches: Batches, steps: int = 0, other: Batches | None = None) -> Diagnosis:
    """After some steps on these batches, or on others."""
    optimizer, given = Adam(model.parameters(), 1e-3), other or batches
    for i in range(steps):
        optimizer.zero_grad()
        loss(model, given[i % len(given)]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return eureka.diagnose(model, batches, loss=loss, optimizer=optimizer)


@pytest.mark.parametrize("steps", [0, 40])
@pytest.mark.parametrize("make", [perceptron, Transformer])
def test_rows_in_the_order_of_their_labels_are_named(make: Callable[[], nn.Module], steps: int) -> None:
    torch.manual_seed(0)
    found = diagnosed(make(), in_batches(rows()[1].argsort()), steps)
    assert found.cause == "data_sorted"
    assert found.findings[0].numbers["classes"] < 1.2
    assert found.remedies == ()


@pytest.mark.parametrize("make", [perceptron, Transformer])
def test_the_same_rows_shuffled_are_no_fault(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    found = diagnosed(make(), in_batches(torch.randperm(ROWS)), 40)
    assert not {"data_sorted", "labels_constant"} & {one.cause for one in found.findings}
    assert found.healthy


def test_batches_of_a_few_classes_each_are_no_fault() -> None:
    torch.manual_seed(0)
    labels = rows()[1]
    of = [(labels == k).nonzero()[:, 0] for k in range(CLASSES)]
    most = min(map(len, of)) // 32
    pairs = [torch.cat([of[i % 4][(i // 4) * 32 :][:32], of[(i + 1) % 4][(i // 4) * 32 :][:32]]) for i in range(4 * most)]
    x = rows()[0]
    found = diagnosed(perceptron(), [(x[one], labels[one]) for one in pairs][:40], 20)  # two of four classes in a batch
    assert "data_sorted" not in {one.cause for one in found.findings}


def test_who_has_learned_all_classes_is_not_told_to_shuffle() -> None:
    torch.manual_seed(0)
    found = diagnosed(perceptron(), in_batches(rows()[1].argsort()), 2000, other=in_batches(torch.randperm(ROWS)))
    assert "data_sorted" not in {one.cause for one in found.findings}


@pytest.mark.parametrize(("count", "named"), [(40, True), (3, False)])
def test_labels_that_are_all_the_same_are_named_if_there_are_many(count: int, named: bool) -> None:
    torch.manual_seed(0)
    batches = [(x, torch.full_like(y, 2)) for x, y in in_batches(torch.arange(ROWS))[:count]]
    found = diagnosed(perceptron(), batches)
    assert ("labels_constant" in {one.cause for one in found.findings}) is named
    if named:
        assert found.cause == "labels_constant"
        assert "are 2, and the model tells 4 classes apart" in str(found)


def test_a_contrastive_loss_that_asks_for_the_first_place_is_no_fault() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
    batches = [(x, x + 0.1 * torch.randn(x.shape)) for x, _ in in_batches(torch.arange(ROWS))]

    def contrast(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        """As MoCo has it: the logit of the pair first, those of the others behind."""
        one, other = (F.normalize(model(part), dim=1) for part in batch)
        alike, others = (one * other).sum(dim=1, keepdim=True), one @ other.roll(1, dims=0)[:8].T
        return F.cross_entropy(torch.cat([alike, others], dim=1) / 0.2, torch.zeros(len(one), dtype=torch.long))

    found = eureka.diagnose(model, batches, loss=contrast, optimizer=Adam(model.parameters(), 1e-3))
    assert found.healthy


def test_texts_of_one_topic_a_batch_are_no_sorted_labels() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(40, 16), nn.Linear(16, 40))
    texts = [10 * (i % 4) + torch.randint(0, 10, (16, 9)) for i in range(40)]  # every batch has words of its own

    def next_word(model: nn.Module, batch: Tensor) -> Tensor:
        return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())

    found = eureka.diagnose(model, texts, loss=next_word, optimizer=Adam(model.parameters(), 1e-3))
    assert "data_sorted" not in {one.cause for one in found.findings}


@pytest.mark.parametrize("drawn", [1, 7, 64])
def test_the_classes_of_a_shuffled_batch_are_as_many_as_the_hypergeometric_distribution_says(drawn: int) -> None:
    counts = torch.tensor([500, 60, 3, 0, 1])
    wanted = sum(1 - hypergeom(564, int(count), drawn).pmf(0) for count in counts)
    assert float(classes_in_a_sample(counts, drawn)) == pytest.approx(wanted, rel=1e-9)
    assert float(classes_in_a_sample(counts, 564)) == pytest.approx(4.0)
