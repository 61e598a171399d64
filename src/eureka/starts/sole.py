"""Do W_Q and W_K make q and k, and nothing else? Asked before they are rescaled.

The module with the projections is run with its attention weights frozen: whatever q and k are, the weights are those of the first
run. Then W_Q and W_K, doubled, must leave what comes out alone; else they make values, a gate or a residual too. (What becomes of
keys that are handed out is asked of the whole model, by `elsewhere`.) They must change q and k; else a norm stands between. And
the rows of some heads, doubled, must leave the other heads alone; else heads lie in another order than they seem to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from eureka.attention.explicit import mix
from eureka.attention.extras import Extras
from eureka.attention.mask import Mask
from eureka.attention.softmax import Softmax
from eureka.probes.projections import Heads, Projection
from eureka.starts.alone import Alone, is_key, multiplied

CLOSE = 1e-3
"""How near two numbers are that count as the same, as a share of the largest."""
NORMED = 1.5
"""If q or k grows less than this when its weight is doubled, a norm may stand between; its epsilon lets it grow a little."""
CROSSED = "has heads whose rows could not be told apart"
"""Why heads are left alone that lie across each other."""
Projections = Mapping[str, Projection]


class Asked(NamedTuple):
    """What was found of some sites; they go by their index."""

    reasons: dict[tuple[int, str], str]
    """Why W_Q ("q") or W_K ("k") must be left alone."""
    unknown: set[int]
    """Sites that could not be asked: their module cannot be run by itself, or comes out otherwise each time."""


class Frozen(Softmax):
    """Plain softmax until `replay` is called; from then on its calls give the weights of the first calls again."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[Tensor] = []
        self._next: int | None = None

    def replay(self) -> None:
        """Begin again with the first weights."""
        self._next = 0

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        return self._frozen(super().weights(q, k, mask))

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        return mix(self.weights(q, k, mask), v, dropout)

    def with_extras(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None, dropout: float, extras: Extras
    ) -> tuple[Tensor, Tensor]:
        weights = self._frozen(super().with_extras(q, k, v, mask, dropout, extras)[1])
        return mix(weights, v, dropout), weights

    def _frozen(self, weights: Tensor) -> Tensor:
        if self._next is None:
            self._kept.append(weights)
            return weights
        self._next += 1
        return self._kept[self._next - 1]


def why_not_sole(modules: Mapping[int, Alone], heads: Mapping[int, Heads], found: Mapping[int, Projections]) -> Asked:
    """Ask every site of which W_Q and W_K were found."""
    asked = Asked({}, set())
    for index, projections in found.items():
        try:
            asking = _Asking(modules[index], heads[index])
            if not asking.alike():
                asked.unknown.add(index)
                continue
            for letter, projection in projections.items():
                if (why := asking.why_not(letter, projection)) is not None:
                    asked.reasons[index, letter] = why
        except Exception:  # its module cannot be run by itself, or its weights cannot be replaced
            asked.unknown.add(index)
    return asked


class _Asking:
    """The module of a site, run on one and the same inputs with frozen weights."""

    def __init__(self, module: Alone, heads: Heads) -> None:
        self._module, self._heads, self._frozen = module, heads, Frozen()
        self._once = self._run()

    def alike(self) -> bool:
        """Whether numbers come out, and the same ones again."""
        return bool(self._once[0].isfinite().all() and _same(self._once[0][None], self._run()[0][None]).all())

    def why_not(self, letter: str, projection: Projection) -> str | None:
        """Why W_Q or W_K must be left alone."""
        count, name = len(self._every(letter)), f"W_{letter.upper()}"
        with multiplied(projection, self._every(letter)):
            out, now = self._run()
        if not _same(self._once[0][None], out[None]).all() or self._is_other(letter, now):
            return (
                f"has a {name} that makes more than {letter} (values, a gate or a residual), or q, k and v lie in another order"
            )
        if _same(self._once[1][letter], now[letter]).all() and self._is_unused(projection, letter):
            return f"has a {name} that does not make {letter}"
        if _grown(self._once[1][letter], now[letter]) < NORMED and not self._is_straight(projection, letter, now[letter]):
            return f"norms {letter} behind {name}, so that no factor of {name} changes its logits"
        for place in range((count - 1).bit_length()):
            chosen = (torch.arange(count) >> place) % 2 == 1
            with multiplied(projection, chosen):
                _, now = self._run()
            if not (chosen | _same(self._once[1][letter], now[letter]).cpu()).all():
                return CROSSED
        return None

    def _every(self, letter: str) -> Tensor:
        """All heads of q or k."""
        return torch.ones(self._heads.queries if letter == "q" else self._heads.groups, dtype=torch.bool)

    def _is_other(self, letter: str, now: Mapping[str, Tensor]) -> bool:
        """Whether the rows that seem to make q made k, or the other way round."""
        (other,) = {"q", "k"} - {letter}
        return not _same(self._once[1][other], now[other]).all()

    def _is_unused(self, projection: Projection, letter: str) -> bool:
        """Whether q or k is the same without its weight: then no norm hides it."""
        with multiplied(projection, self._every(letter), 0.0):
            _, now = self._run()
        return bool(_same(self._once[1][letter], now[letter]).all())

    def _is_straight(self, projection: Projection, letter: str, twice: Tensor) -> bool:
        """Whether q or k grows in a straight line with its weight: something is added to it, and nothing norms it."""
        with multiplied(projection, self._every(letter)), multiplied(projection, self._every(letter)):
            _, now = self._run()
        grown = (twice - self._once[1][letter]).float()
        return bool(grown.any()) and bool(_same(2 * grown, (now[letter] - twice).float()).all())

    def _run(self) -> tuple[Tensor, dict[str, Tensor]]:
        """All numbers that come out, but keys for a cache, and q and k of the first call, a row for each head."""
        out, call = self._module.run(self._frozen)
        self._frozen.replay()
        leaves = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
        numbers = [leaf.flatten() for leaf in leaves if not is_key(leaf, call.k)]
        parts = {"q": call.q, "k": call.k[:, :: call.k.shape[1] // self._heads.groups]}
        return torch.cat([part.float() for part in numbers]), {
            letter: part.transpose(0, 1).flatten(1) for letter, part in parts.items()
        }


def _grown(once: Tensor, now: Tensor) -> float:
    """How many times longer the row is that grew most; infinite if all were zero."""
    ratios = (now.float().norm(dim=1) / once.float().norm(dim=1)).nan_to_num(0.0)
    return ratios.max().item() if once.any() else math.inf


def _same(once: Tensor, now: Tensor) -> Tensor:
    """For each row, whether it is what it was."""
    once, now = once.float().flatten(1), now.float().flatten(1)
    return (now - once).abs().amax(dim=1) <= CLOSE * once.abs().amax(dim=1)
