"""Masked language modelling on a real corpus: some tokens are hidden, and asked for."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Generator

from eureka.data.text import encoded_corpus
from eureka.runs import Level
from eureka.tasks.sequence import IGNORED, SequenceTask
from eureka.tasks.task import Batch, Split
from eureka.tasks.text_levels import Score, Statistics

Count = Annotated[int, Field(ge=2)]
MASK = 0
HIDDEN, REPLACED, LEFT = 0.8, 0.1, 0.1  # of the tokens that are asked for: by the mask, by any token, as they are


class MaskedText(SequenceTask):
    """Windows of a corpus in byte pairs; a share of the tokens is asked for, of which 80 % are hidden and 10 % replaced.

    Training and validation windows come from different documents.
    """

    def __init__(
        self,
        *,
        corpus: Literal["sotu", "moby_dick", "bible"] = "sotu",
        vocabulary: Annotated[int, Field(ge=300)] = 2000,
        length: Count = 64,
        share: Annotated[float, Field(gt=0, lt=1)] = 0.15,
    ) -> None:
        encoded = encoded_corpus(corpus, vocabulary)
        self.classes = self.vocabulary = encoded.vocabulary
        self.share, self.input_shape = share, (length,)
        self.rows = {"train": torch.from_numpy(encoded.train).long(), "validation": torch.from_numpy(encoded.validation).long()}

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        row, length = self.rows[split], self.input_shape[0]
        start = torch.randint(len(row) - length + 1, (n, 1), generator=generator)
        tokens = row[start + torch.arange(length)]
        asked = torch.rand(n, length, generator=generator) < self.share
        fate = torch.rand(n, length, generator=generator)
        anything = torch.randint(1, self.classes, (n, length), generator=generator)
        shown = tokens.masked_fill(asked & (fate < HIDDEN), MASK)
        shown = shown.where(~asked | (fate < HIDDEN) | (fate >= HIDDEN + REPLACED), anything)
        return Batch(shown, tokens.masked_fill(~asked, IGNORED), {"hidden": (shown == MASK).long(), "token": tokens})

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        """How well the validation text is known by who knows how frequent each token is; also what stands there; also before it.

        The first is the unigram entropy. The second looks at the place itself: where a token is not hidden, it tells what it may
        be. The third has the token before in place of the frequency. It is no floor, for nobody knows that of a language: it is
        the nearest level that cannot be had without looking at another token. Frequencies are counted in the training text (plus
        one each), pairs smoothed after Witten & Bell 1991; neither has anything to tune.
        """
        text = Statistics(self.rows["train"], self.rows["validation"], self.classes, label_smoothing)
        unigram, bigram, seen = text.unigram(), text.bigram(), text.seen(REPLACED / (REPLACED + LEFT))
        return [
            Level("how frequent a token is", *unigram),
            Level("the token itself where it is shown", *_mixed(unigram, seen)),
            Level("the token before", *_mixed(bigram, seen)),
        ]


def _mixed(hidden: Score, seen: Score) -> Score:
    """Loss and accuracy over all that is asked for, hidden or not."""
    loss, accuracy = (HIDDEN * h + (1 - HIDDEN) * s for h, s in zip(hidden, seen, strict=True))
    return loss, accuracy
