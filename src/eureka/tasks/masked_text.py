"""Masked language modelling on a real corpus: some tokens are hidden, and asked for."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import AfterValidator, Field
from torch import Generator, Tensor

from eureka.data.own_text import left_out
from eureka.data.text import LEAST_VOCABULARY, encoded_corpus, is_own, named_corpus
from eureka.errors import RequestError
from eureka.runs import Level
from eureka.tasks.task import IGNORED, Batch, SequenceTask, Split

Count = Annotated[int, Field(ge=2)]
MASK = 0
MOST_ASKED = 12
"""Of the tokens that are asked for in a sample, so many are told."""
HIDDEN, REPLACED, LEFT = 0.8, 0.1, 0.1  # shares of the tokens that are asked for: masked, replaced by any token, left as they are


Score = tuple[float, float]
"""Loss and accuracy."""


class MaskedText(SequenceTask):
    """Windows of a corpus in byte pairs; a share of the tokens is asked for, of which 80 % are hidden and 10 % replaced.

    Training and validation windows come from different documents. The corpus is one of ours (sotu, moby_dick, bible), or the path
    of a text file or of a folder of .txt files.
    """

    def __init__(
        self,
        *,
        corpus: Annotated[str, AfterValidator(named_corpus)] = "sotu",
        vocabulary: Annotated[int, Field(ge=LEAST_VOCABULARY)] = 2000,
        length: Count = 64,
        share: Annotated[float, Field(gt=0, lt=1)] = 0.15,
    ) -> None:
        encoded = encoded_corpus(named_corpus(corpus), vocabulary)
        self.classes = self.vocabulary = encoded.vocabulary
        self.share, self.input_shape = share, (length,)
        self.rows = {"train": torch.from_numpy(encoded.train).long(), "validation": torch.from_numpy(encoded.validation).long()}
        self.corpus, self.pieces = corpus, encoded.pieces
        if (shortest := min(map(len, self.rows.values()))) < length:
            raise RequestError(f"{corpus} is too short: {shortest:,} tokens are held out, and an input has {length:,}.")

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
        """The scores of three predictors on the validation text, each of which uses more than the one before.

        The first knows how frequent each token is (unigram entropy). The second also looks at the place itself: a token that is
        not hidden is probably the answer. The third replaces the frequency by the token before. It is not a floor, because the
        floor of a language is unknown; it is the nearest level that needs a look at another token. Frequencies are counted in
        the training text (plus one each), pairs are smoothed after Witten & Bell 1991; neither has anything to tune.
        """
        text = Statistics(self.rows["train"], self.rows["validation"], self.classes, label_smoothing)
        unigram, bigram, seen = text.unigram(), text.bigram(), text.seen(REPLACED / (REPLACED + LEFT))
        return [
            Level("how frequent a token is", *unigram),
            Level("the token itself where it is shown", *_mixed(unigram, seen)),
            Level("the token before", *_mixed(bigram, seen)),
        ]

    def as_text(self, inputs: Tensor, labels: Tensor) -> tuple[str, str] | None:
        """The text with its masks, after a space where a word begins, and the pieces that are asked for, in quotes."""
        if not self.pieces:
            return None
        shown, asked = bytearray(), list[str]()
        for token, label in zip(inputs.tolist(), labels.tolist(), strict=True):
            answer = b"" if label == IGNORED else self.pieces[label]
            word = answer.removeprefix(b" ") or answer
            shown += b" " if token == MASK and word != answer else b""
            shown += self.pieces[token]
            if word:
                asked.append(word.decode(errors="backslashreplace").replace("\n", "↵"))
        return shown.decode(errors="replace"), " ".join(f"“{piece}”" for piece in asked[:MOST_ASKED])

    def about(self) -> str:
        """Of a text of the user's own: what was read, and the losses that counting tokens and pairs of tokens reaches."""
        if not is_own(self.corpus):
            return ""
        frequent, _, before = self.levels()
        train, held_out = len(self.rows["train"]), len(self.rows["validation"])
        read = f"{train:,} tokens to train on, {held_out:,} held out, a vocabulary of {self.classes:,}"
        losses = f"Loss by frequency alone {frequent.loss:.3f}, with the token before {before.loss:.3f}."
        return " ".join(filter(None, [f"{self.corpus}: {read}.", left_out(named_corpus(self.corpus)), losses]))


def _mixed(hidden: Score, seen: Score) -> Score:
    """Loss and accuracy over all that is asked for, hidden or not."""
    loss, accuracy = (HIDDEN * h + (1 - HIDDEN) * s for h, s in zip(hidden, seen, strict=True))
    return loss, accuracy


class Statistics:
    """Counts of a training text, tried on a validation text. Token 0 is the mask and never a label."""

    def __init__(self, train: Tensor, validation: Tensor, vocabulary: int, label_smoothing: float = 0.0) -> None:
        self.train, self.validation = train, validation
        self.vocabulary, self.smoothing = vocabulary, label_smoothing
        counts = train.bincount(minlength=vocabulary).double() + 1
        counts[0] = 0
        self.frequency = counts / counts.sum()
        self.truth = validation.bincount(minlength=vocabulary).double() / len(validation)

    def unigram(self) -> Score:
        """Nothing is seen but how frequent each token is."""
        return self._score(self.frequency[None], self.truth[None])

    def bigram(self) -> Score:
        """The token before is seen: λ(u) · count(u, v) / count(u) + (1 - λ(u)) · frequency(v), λ = count / (count + kinds)."""
        pairs = pair_counts(self.train, self.vocabulary)
        count, kinds = pairs.sum(1, keepdim=True), (pairs > 0).sum(1, keepdim=True)
        belief = (pairs + kinds * self.frequency) / (count + kinds).clamp_min(1)
        belief[count[:, 0] == 0] = self.frequency
        truth = pair_counts(self.validation, self.vocabulary)
        return self._score(belief, truth / truth.sum())

    def seen(self, replaced: float) -> Score:
        """The token itself is seen, but with this probability it has been replaced by any other, all equally likely."""
        any_token = torch.ones(self.vocabulary, dtype=torch.double) / (self.vocabulary - 1)
        any_token[0] = 0
        belief = (1 - replaced) * torch.diag(self.frequency) + replaced * any_token[:, None] * self.frequency
        truth = (1 - replaced) * torch.diag(self.truth) + replaced * any_token[:, None] * self.truth
        return self._score(belief / belief.sum(1, keepdim=True).clamp_min(1e-300), truth)

    def _score(self, belief: Tensor, truth: Tensor) -> Score:
        """Loss and accuracy of beliefs (contexts, tokens) for the true frequencies of contexts and tokens."""
        e = self.smoothing
        wanted = (1 - e) * truth + e * truth.sum(1, keepdim=True) / self.vocabulary
        answer = (1 - e) * belief + e / self.vocabulary
        loss = -(wanted * answer.clamp_min(1e-300).log()).sum().item()
        accuracy = truth.gather(1, belief.argmax(1, keepdim=True)).sum().item()
        return loss, accuracy


def pair_counts(row: Tensor, vocabulary: int) -> Tensor:
    """(vocabulary, vocabulary): how often each token follows each."""
    pairs = row[:-1] * vocabulary + row[1:]
    return pairs.bincount(minlength=vocabulary**2).view(vocabulary, vocabulary).double()
