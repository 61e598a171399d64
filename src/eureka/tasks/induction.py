"""Random tokens repeated at a random lag: find where the present token stood before, then copy what followed it there."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from pydantic import Field
from torch import Generator

from eureka.errors import RequestError
from eureka.runs import Level
from eureka.tasks.task import IGNORED, Batch, Repeats, SequenceTask, Split

Count = Annotated[int, Field(ge=2)]


class Induction(SequenceTask):
    """`lag` different tokens, over and over; asked for is every next token that has stood there before.

    The lag differs from sample to sample, so that no fixed offset helps; the first repeated token is not asked for, because
    nothing tells where the repetition begins.
    """

    def __init__(self, *, vocabulary: Count = 64, length: Count = 48, shortest_lag: Count = 8, longest_lag: Count = 16) -> None:
        if not shortest_lag <= longest_lag <= vocabulary or longest_lag > length - 2:
            raise RequestError(
                f"lags from {shortest_lag} to {longest_lag} do not fit {vocabulary} different tokens and a length of {length}."
            )
        self.vocabulary = self.classes = vocabulary
        self.lags, self.input_shape = (shortest_lag, longest_lag), (length,)

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        shortest, longest = self.lags
        lag = torch.randint(shortest, longest + 1, (n, 1), generator=generator)
        different = torch.rand(n, self.classes, generator=generator).argsort(dim=1)[:, :longest]
        place = torch.arange(self.input_shape[0] + 1).expand(n, -1)
        tokens = different.gather(1, place % lag)
        labels = tokens[:, 1:].where(place[:, 1:] > lag, IGNORED)
        return Batch(tokens[:, :-1], labels, {"lag": lag[:, 0], "token_before": tokens[:, :-1].roll(1, dims=1)})

    def repeats(self, batch: Batch) -> Repeats:
        return Repeats(batch.inputs, batch.labels != IGNORED)

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """A predictor that knows which tokens have occurred; one that also knows how often; one that also knows their order.

        The present token is never next. Of `lag` tokens the j that have occurred once more than the others have had their
        turn, so the next is one of the other lag - j, or of all but the present one when the turn is over.
        """
        seen, counted, floor = _Mean(), _Mean(), _Mean()
        for lag in range(self.lags[0], self.lags[1] + 1):
            for place in range(lag + 1, self.input_shape[0] + 1):
                turn = place % lag
                seen.add(lag - 1, self.classes, label_smoothing)
                counted.add(lag - turn if turn else lag - 1, self.classes, label_smoothing)
        floor.add(1, self.classes, label_smoothing)
        return [seen.level("which tokens"), counted.level("how often"), floor.level("in which order")]


class _Mean:
    """The mean loss and accuracy over positions at which some number of tokens are equally likely."""

    def __init__(self) -> None:
        self.loss, self.accuracy, self.count = 0.0, 0.0, 0

    def add(self, candidates: int, classes: int, smoothing: float) -> None:
        each = (1 - smoothing) / candidates + smoothing / classes
        rest = smoothing / classes
        self.loss -= candidates * each * math.log(each)
        self.loss -= (classes - candidates) * rest * math.log(rest) if rest else 0.0
        self.accuracy += 1 / candidates
        self.count += 1

    def level(self, knows: str) -> Level:
        return Level(knows, self.loss / self.count, self.accuracy / self.count)
