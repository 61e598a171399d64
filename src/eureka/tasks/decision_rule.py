"""The rule of the multi-step tasks, without pictures: each answer tells where to look for the next.

Tiles come in blocks of four, [top-left, top-right, bottom-left, bottom-right]. In the first block the main diagonal holds a
pair of *indicators* and the other diagonal the two *targets*. The pair shows the same class → look at the top-right target,
otherwise at the bottom-left one; the label is the class of that target. That is the two-step task of the paper.

With more decisions there is one more block for each, holding two pairs of indicators, one on each diagonal. The first pair's
answer tells which pair of the second block to compare, and so on; the last answer picks the target.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from eureka.runs import Level

MAIN, OTHER = (0, 3), (1, 2)  # the two diagonals of a block


@dataclass(frozen=True)
class Drawn:
    """What is to be shown, and the answers.

    `tiles` is (n, blocks, 4): indicator classes from 0, target classes from `indicator_classes`.
    """

    tiles: Tensor
    labels: Tensor
    steps: dict[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class DecisionRule:
    """The rule for a number of decision steps, the last of which is the classification of the target."""

    decisions: int = 2
    indicator_classes: int = 2
    target_classes: int = 10
    p_same: float = 0.5
    """The probability that a pair shows the same class twice."""

    @property
    def blocks(self) -> int:
        return self.decisions - 1

    def draw(self, n: int, generator: Generator) -> Drawn:
        """Draw pairs and targets, and follow the rule from answer to answer."""
        pairs = 2 * self.blocks - 1
        same = torch.rand(n, pairs, generator=generator) < self.p_same
        first = torch.randint(self.indicator_classes, (n, pairs), generator=generator)
        shift = torch.randint(1, self.indicator_classes, (n, pairs), generator=generator)
        second = torch.where(same, first, (first + shift) % self.indicator_classes)
        targets = torch.randint(self.target_classes, (n, 2), generator=generator)

        answers = [same[:, 0]]
        for block in range(1, self.blocks):
            pair = 2 * block - answers[-1].long()  # same → the main diagonal's pair, otherwise the other one
            answers.append(same.gather(1, pair[:, None])[:, 0])
        labels = torch.where(answers[-1], targets[:, 0], targets[:, 1])

        steps = {f"decision_{i}": answer.long() for i, answer in enumerate(answers, start=1)}
        steps |= {"indicator_1": first[:, 0], "indicator_2": second[:, 0], "target_1": targets[:, 0], "target_2": targets[:, 1]}
        return Drawn(self._place(first, second, targets + self.indicator_classes), labels, steps)

    def _place(self, first: Tensor, second: Tensor, targets: Tensor) -> Tensor:
        tiles = torch.empty(len(first), self.blocks, 4, dtype=torch.long)
        tiles[:, 0, MAIN] = torch.stack([first[:, 0], second[:, 0]], dim=-1)
        tiles[:, 0, OTHER] = targets
        for block in range(1, self.blocks):
            for pair, diagonal in ((2 * block - 1, MAIN), (2 * block, OTHER)):
                tiles[:, block, diagonal] = torch.stack([first[:, pair], second[:, pair]], dim=-1)
        return tiles

    def tile_names(self) -> list[str]:
        """What is shown where, block by block.

        >>> DecisionRule().tile_names()
        ['indicator a', 'target a', 'target b', 'indicator b']
        """
        names = ["indicator a", "target a", "target b", "indicator b"]
        for block in range(2, self.blocks + 1):
            names += [f"indicator {block}{letter}" for letter in "acdb"]  # a and b are one pair, c and d the other
        return names

    def levels(self, label_smoothing: float = 0.0, reading: float = 1.0) -> list[Level]:
        """Where a predictor must stay that has learned the last m steps, for m = 1 … decisions.

        It knows the label when both targets show the same class (1 time in C), or when both pairs it could be sent to give
        the same answer. With p the probability of a same pair, it is left to guess between two classes with probability
        u = (1 - 1/C) · (2p(1-p))^(m-1), and then knows only that one has probability p.

        `reading` is how often a target is read right; when it is not, every other class is read alike, w = (1 - reading)/(C - 1).
        """
        p, names = self.p_same, ["the last step", *(f"the last {m} steps" for m in range(2, self.decisions)), "all steps"]
        w = (1 - reading) / (self.target_classes - 1)
        sure = [reading, *[w] * (self.target_classes - 1)]
        torn = [p * reading + (1 - p) * w, (1 - p) * reading + p * w, *[w] * (self.target_classes - 2)]
        certain, guessing = (smoothed_entropy(belief, self.target_classes, label_smoothing) for belief in (sure, torn))
        levels = []
        for m, name in enumerate(names):
            u = 0.0 if m == self.blocks else (1 - 1 / self.target_classes) * (2 * p * (1 - p)) ** m
            levels.append(Level(name, u * guessing + (1 - u) * certain, u * max(torn) + (1 - u) * max(sure)))
        return levels


def smoothed_entropy(posterior: Sequence[float], classes: int, label_smoothing: float) -> float:
    """The least cross-entropy to labels smoothed by ε when the class has this posterior (zero for all classes not given).

    H = -Σ q ln q with q = (1 - ε) p + ε / C

    >>> round(smoothed_entropy([0.5, 0.5], 10, 0.0), 3)
    0.693
    """
    padded = [*posterior, *[0.0] * (classes - len(posterior))]
    smoothed = [(1 - label_smoothing) * p + label_smoothing / classes for p in padded]
    return 0.0 - sum(q * math.log(q) for q in smoothed if q > 0)  # not -sum: that of a certain class is -0.0
