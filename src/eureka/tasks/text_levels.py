"""How well a text is predicted by counting: single tokens, pairs, and a token that may have been replaced."""

from __future__ import annotations

import torch
from torch import Tensor

Score = tuple[float, float]
"""Loss and accuracy."""


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
        """Loss and accuracy of beliefs (contexts, tokens) when contexts and tokens truly occur together so often."""
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
