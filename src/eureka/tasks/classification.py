"""In-context classification (Reddy 2023): items with their labels, then an item whose label must be found among them."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Generator, Tensor

from eureka.errors import RequestError
from eureka.runs import Level
from eureka.tasks.decision_rule import smoothed_entropy
from eureka.tasks.task import Batch, Repeats, Split, Task


class Classification(Task):
    """`context` pairs of item and label as tokens in turn, each class `burstiness` times, then one more item of one of them.

    An item is (μ + ε η) / √(1 + ε²), with μ the centre of its class and η noise, both N(0, 1/features) in each feature. Every
    training class has one of `labels` labels for ever. Validation shows new classes with any labels, so that a label can only be
    read off the context; in a share 1 - `p_bursty` of the training samples the last item is of any class, and only memory helps.
    """

    def __init__(
        self,
        *,
        item_classes: Annotated[int, Field(ge=2)] = 1024,
        labels: Annotated[int, Field(ge=2)] = 32,
        context: PositiveInt = 8,
        burstiness: PositiveInt = 2,
        noise: NonNegativeFloat = 0.1,
        p_bursty: Annotated[float, Field(ge=0, le=1)] = 1.0,
        features: PositiveInt = 32,
        world: NonNegativeInt = 0,
    ) -> None:
        if context % burstiness or item_classes < context:
            raise RequestError(
                f"burstiness ({burstiness}) must divide context ({context}), and item_classes ({item_classes}) must be no fewer."
            )
        self.classes, self.context, self.distinct = labels, context, context // burstiness
        self.noise, self.p_bursty = noise, p_bursty
        self.input_shape = (2 * context + 1, features)
        generator = Generator().manual_seed(world)
        self.centres = torch.randn(item_classes, features, generator=generator) / features**0.5
        self.label_of = torch.randint(labels, (item_classes,), generator=generator)
        self.label_tokens = torch.randn(labels, features, generator=generator) / features**0.5

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        centres, labels = self._known(n, generator) if split == "train" else self._new(n, generator)
        each = torch.arange(n)[:, None]
        shown = torch.rand(n, self.context, generator=generator).argsort(dim=1) % self.distinct  # each class equally often
        last = torch.randint(self.distinct, (n, 1), generator=generator)
        last_centre, last_label = centres[each, last], labels[each, last]
        if split == "train" and self.p_bursty < 1:
            anything = torch.randint(len(self.centres), (n, 1), generator=generator)
            bursty = torch.rand(n, 1, generator=generator) < self.p_bursty
            last_centre = last_centre.where(bursty[..., None], self.centres[anything])
            last_label = last_label.where(bursty, self.label_of[anything])
        tokens = torch.empty(n, *self.input_shape)
        tokens[:, 0::2] = self._items(torch.cat([centres[each, shown], last_centre], dim=1), generator)
        tokens[:, 1::2] = self.label_tokens[labels[each, shown]]
        steps = {"context_labels": labels[each, shown], "matches": (shown == last).long()}
        return Batch(tokens, last_label[:, 0], steps)

    def _known(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Different classes of the training world: their centres and their labels."""
        classes = torch.rand(n, len(self.centres), generator=generator).topk(self.distinct, dim=1).indices
        return self.centres[classes], self.label_of[classes]

    def _new(self, n: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """New classes, with random labels."""
        features = self.input_shape[-1]
        centres = torch.randn(n, self.distinct, features, generator=generator) / features**0.5
        return centres, torch.randint(self.classes, (n, self.distinct), generator=generator)

    def _items(self, centres: Tensor, generator: Generator) -> Tensor:
        noise = torch.randn(centres.shape, generator=generator) / math.sqrt(centres.shape[-1])
        return (centres + self.noise * noise) / math.sqrt(1 + self.noise**2)

    def repeats(self, batch: Batch) -> Repeats:
        """Items of the last item's class are the same, everything else differs; only the last item is asked about.

        The token after an item is its label, so that a head which matches prefixes looks at the label.
        """
        matches = batch.steps["matches"].bool()
        tokens = torch.arange(1, self.input_shape[0] + 1, device=matches.device).repeat(len(matches), 1)
        tokens[:, 0:-1:2] = tokens[:, 0:-1:2].masked_fill(matches, 0)
        tokens[:, -1] = 0
        asked = torch.zeros_like(tokens, dtype=torch.bool)
        asked[:, -1] = True
        return Repeats(tokens, asked)

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """A predictor that reads the labels of the context but not the items expects each label as often as it occurs there."""
        M, L = self.distinct, self.classes
        certain = smoothed_entropy([1.0], L, label_smoothing)
        guessing, accuracy = 0.0, 0.0
        for counts, chance in occupancies(M, L):
            guessing += chance * smoothed_entropy([count / M for count in counts], L, label_smoothing)
            accuracy += chance * max(counts) / M
        return [Level("the labels of the context", guessing, accuracy), Level("the item's label", certain, 1.0)]


def occupancies(balls: int, boxes: int) -> list[tuple[tuple[int, ...], float]]:
    """How balls thrown at random fill boxes: the counts, largest first, and the chance of each pattern.

    >>> [(counts, round(chance, 3)) for counts, chance in occupancies(2, 4)]
    [((2,), 0.25), ((1, 1), 0.75)]
    """
    return [(counts, _chance(counts, boxes)) for counts in _partitions(balls, balls) if len(counts) <= boxes]


def _partitions(total: int, most: int) -> list[tuple[int, ...]]:
    if total == 0:
        return [()]
    return [(first, *rest) for first in range(min(total, most), 0, -1) for rest in _partitions(total - first, first)]


def _chance(counts: tuple[int, ...], boxes: int) -> float:
    arrangements = math.factorial(sum(counts))
    for count in counts:
        arrangements //= math.factorial(count)
    choices = math.perm(boxes, len(counts))
    for repeated in set(counts):
        choices //= math.factorial(counts.count(repeated))
    return arrangements * choices / math.pow(boxes, sum(counts))
