"""Targets far from what a new model gives, and those that only look so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Adam, AdamW, Optimizer

import eureka
from eureka.doctor.changes import both, fresh
from eureka.doctor.checks.scales import in_units
from eureka.doctor.exam import Exam
from eureka.doctor.finding import Diagnosis
from eureka.forks.case import Case, make_case

Batches = list[tuple[Tensor, Tensor]]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))


class Series(nn.Module):
    """A small transformer that foretells one number from twelve."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True)
        self.embed, self.head = nn.Linear(1, 32), nn.Linear(32, 1)
        self.positions = nn.Parameter(torch.randn(12, 32))
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.encoder(self.embed(x[..., None]) + self.positions).mean(dim=1))
        return out


def rows(width: int, centre: float, spread: float, noise: float = 0.0) -> Batches:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40 * 64, width, generator=generator)
    told = x[:, :3].sum(dim=1, keepdim=True) / 3**0.5
    y = (1 - noise**2) ** 0.5 * told + noise * torch.randn(told.shape, generator=generator)
    targets = centre + spread * y
    return [(x[i : i + 64], targets[i : i + 64]) for i in range(0, len(x), 64)]


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def diagnosed(model: nn.Module, batches: Batches, optimizer: Optimizer, steps: int) -> Diagnosis:
    for i in range(steps):
        optimizer.zero_grad()
        loss(model, batches[i % len(batches)]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return eureka.diagnose(model, batches, loss=loss, optimizer=optimizer)


@pytest.mark.parametrize("make", [mlp, Series], ids=["perceptron", "transformer"])
@pytest.mark.parametrize(("centre", "spread"), [(1e4, 100.0), (0.0, 5000.0)], ids=["far away", "wide"])
def test_targets_that_outputs_would_have_to_travel_to_are_named(
    make: Callable[[], nn.Module], centre: float, spread: float
) -> None:
    torch.manual_seed(0)
    model = make()
    found = diagnosed(model, rows(8 if make is mlp else 12, centre, spread), Adam(model.parameters(), 1e-3), 60)
    assert found.cause == "targets_unscaled"
    assert found.findings[0].numbers["mean"] == pytest.approx(centre, abs=0.1 * spread)
    assert found.findings[0].numbers["spread"] == pytest.approx(spread, rel=0.1)
    assert found.remedies == ()  # no remedy on the model mends them


@pytest.mark.parametrize("make", [mlp, Series], ids=["perceptron", "transformer"])
def test_the_advice_mends_it(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, batches = make(), rows(8 if make is mlp else 12, 1e4, 100.0)
    y_train = torch.cat([y for _, y in batches])
    scaled = [(x, (y - y_train.mean()) / y_train.std()) for x, y in batches]
    assert diagnosed(model, scaled, Adam(model.parameters(), 1e-3), 60).healthy


def test_large_targets_that_are_being_learned_are_no_fault() -> None:
    torch.manual_seed(0)
    model = mlp()
    assert diagnosed(model, rows(8, 50.0, 30.0), Adam(model.parameters(), 1e-2), 60).healthy


def test_large_targets_that_are_mostly_noise_are_no_fault_where_the_rest_is_learned() -> None:
    torch.manual_seed(0)
    model, batches = nn.Linear(8, 1), rows(8, 2000.0, 300.0, noise=0.9)
    with torch.no_grad():  # the best weights there are
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        best = torch.linalg.lstsq(torch.cat([x, torch.ones(len(x), 1)], dim=1), y).solution
        model.weight.copy_(best[:8].T)
        model.bias.copy_(best[8])
    found = diagnosed(model, batches, AdamW(model.parameters(), 1e-3, weight_decay=0.0), 0)
    assert "targets_unscaled" not in {one.cause for one in found.findings}


@pytest.mark.parametrize("optimiser", [SGD, Adam])
def test_the_trial_trains_as_normalised_targets_would(optimiser: type[SGD] | type[Adam]) -> None:
    torch.manual_seed(0)
    model, batches, (centre, spread) = mlp(), rows(8, 300.0, 40.0), (300.0, 40.0)
    scaled = [(x, (y - centre) / spread) for x, y in batches]

    def case(given: Batches) -> Case:
        return make_case(model, given, loss=loss, step=None, most=40, optimizer=optimiser(model.parameters(), lr=1e-2))

    in_their_units = Exam(case(batches)).trial(both(fresh, in_units(centre, spread)), 30).losses
    normalised = Exam(case(scaled)).trial(fresh, 30).losses
    assert in_their_units == pytest.approx([one * spread**2 for one in normalised], rel=1e-3)
