"""A sum that a model makes before its first attention, and whether it adds positions to content."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from eureka.attention.mask import NEVER

STEADY = 0.1
"""The variance of positions over samples, as a share of that over tokens, is less than this."""
VARIES = 1e-4
"""That of content is more than this, and ten times that of positions."""

Sources = frozenset[str]
"""Names of the parameters and buffers that a tensor comes from; empty for a constant."""


@dataclass(frozen=True, eq=False)
class Addition:
    """A sum of a term that comes from parameters alone and the rest, both in full shape, samples first."""

    term: Tensor
    rest: Tensor
    sources: Sources
    rest_sources: Sources
    """Empty if the rest comes from data."""
    spans_tokens: bool
    """Whether the term was given for each token and feature, and not broadcast over one of them."""
    counted: bool
    """Whether the term was looked up by numbers that count from token to token."""
    real: Tensor | None = None
    """(samples, tokens): which tokens are no padding, and count; None for all."""
    deep: bool = False
    """Whether it comes after the first attention, and adds to what attention made of the data."""
    number: int = 0
    """Its place among the additions of a pass that have the same sources."""
    place: int = 0
    """Its place among all sums of the pass."""
    parts: frozenset[int] = frozenset()
    """The sums that term and rest were computed from, by their places."""

    @property
    def ratio(self) -> float:
        """rms(term) / rms(rest)."""
        return (self.rms(self.term) / self.rms(self.rest).clamp_min(torch.finfo(torch.float32).tiny)).item()

    def rms(self, x: Tensor) -> Tensor:
        """The root mean square of a tensor in the shape of the sum, over the tokens that count."""
        return (x if self.real is None else x[self.real]).float().square().mean().sqrt()

    @property
    def numbers(self) -> int:
        """How many numbers a root mean square is taken over."""
        return (self.rest[..., 0].numel() if self.real is None else int(self.real.sum())) * self.rest.shape[-1]

    def joined(self, other: Addition) -> Addition:
        """The samples of both."""
        term, rest = torch.cat([self.term, other.term]), torch.cat([self.rest, other.rest])
        real = None if self.real is None or other.real is None else torch.cat([self.real, other.real])
        return replace(self, term=term, rest=rest, real=real)

    def again(self, other_pass: Iterable[Addition]) -> Addition:
        """The same addition in another pass, which may have more additions or fewer: parts that are zero are not joined."""
        return next(one for one in other_pass if (one.sources, one.number) == (self.sources, self.number))

    def adds_positions(self) -> bool:
        """Whether the term is positions and the rest is content, and no mask that the term is a bias beside."""
        if not self.spans_tokens or not self.rest.numel() or self.rest.min().item() <= NEVER or self._is_branch():
            return False
        over_tokens = self._over_tokens(self.term)
        if over_tokens > 0 and self.counted and self.varies():
            return True
        if not over_tokens > 0 or not self._mostly_distinct():
            return False
        samples, content = self._over_samples(self.term), self._over_samples(self.rest)
        floor = self._over_tokens(self.rest)
        typical = (samples.median() / over_tokens).item()  # padding may move the positions of a few tokens
        return (
            typical < STEADY
            and content.mean().item() > max(VARIES, 10 * typical) * floor
            and samples.mean().item() * floor <= content.mean().item() * over_tokens
        )

    def _is_branch(self) -> bool:
        """Whether the term is made of the content, as by a recurrence, however little it differs between samples."""
        return not (self.sources.isdisjoint(self.rest_sources) or self.counted or self.is_steady())

    def varies(self) -> bool:
        """Whether the rest differs between samples."""
        return bool(self._over_samples(self.rest).any())

    def is_undecided(self) -> bool:
        """Whether the term may be positions, but neither it nor the rest differs between samples."""
        return self.spans_tokens and self._over_tokens(self.term) > 0 and self.is_steady() and not self.varies()

    def is_steady(self) -> bool:
        """Whether the term is the same for every sample."""
        return not self._over_samples(self.term).any()

    def is_part(self) -> bool:
        """Whether the term may be a part of positions: rows or columns, the same for many tokens and for every sample."""
        if not self.spans_tokens or self.counted or not self.term.any() or not self.is_steady():
            return False
        return not (self._over_tokens(self.term) > 0 and self._mostly_distinct())

    def follows(self, other: Addition) -> bool:
        """Whether the rest is what the other sum gave."""
        return self.rest.shape == other.rest.shape and torch.equal(self.rest, other.term + other.rest)

    def _over_samples(self, x: Tensor) -> Tensor:
        """The variance of each token over the samples."""
        return _variance(x, 0, self.real).mean(dim=-1)

    def _over_tokens(self, x: Tensor) -> float:
        """The variance over tokens; over rows or columns, whichever is less, if tokens lie in a plane."""
        return min(_variance(x, axis, self.real).mean().item() for axis in range(1, x.dim() - 1))

    def _mostly_distinct(self) -> bool:
        """Whether more than half of the tokens of a sample have a vector of their own; segments have few."""
        longest = 0 if self.real is None else int(self.real.sum(dim=1).argmax())
        tokens = self.term[longest] if self.real is None else self.term[longest][self.real[longest]]
        rows = tokens.flatten(0, -2)
        return 2 * len(torch.unique(rows, dim=0)) > len(rows)


def with_joint(sums: Sequence[Addition]) -> Iterator[Addition]:
    """The sums, and behind a part of positions that is added to another part also the sum of both: ``x + row + column``."""
    parts: list[tuple[Addition, Addition]] = []
    for one in sums:
        yield one
        if one.is_part():
            joint = next((whole for part, whole in parts if one.follows(part)), None)
            if joint is not None:
                joint = replace(joint, term=joint.term + one.term, sources=joint.sources | one.sources)
                yield joint
            parts.append((one, joint or one))


def _variance(x: Tensor, axis: int, real: Tensor | None) -> Tensor:
    """The variance over an axis, without padding: then only where two or more count, if there is such a place."""
    x = x.float()
    if real is None:
        return x.var(dim=axis, correction=0)
    real = real.unsqueeze(-1)
    n = real.sum(dim=axis, keepdim=True).clamp_min(1)
    mean = torch.where(real, x, 0.0).sum(dim=axis, keepdim=True) / n
    found = torch.where(real, x - mean, 0.0).square().sum(dim=axis) / n.squeeze(axis)
    several = n.flatten() >= 2
    return found[several] if several.any() else found
