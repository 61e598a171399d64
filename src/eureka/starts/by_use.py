"""Find W_Q and W_K of a site by what they do, where no name tells them: doubled, they double q or k and nothing else.

The module with the projections is run alone, on what it gets in a pass of the model. A matrix makes q if q doubles with it and
its bias. Which of its rows make which head is told by the gradient of q: it reaches the rows of a head from that head alone,
also where rotary positions turn features into each other. Heads are asked for in binary: those with a one at some place of their
number together, then those with a zero. A few passes tell every row, in whatever order they lie. Doubling is exact in floating
point, and the matrix gets its own bits back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from eureka.probes.projections import Heads, Projection
from eureka.starts.alone import Alone, elements_multiplied, multiplied

CLOSE = 1e-3
"""How near a feature is to once or twice what it was, as a share of its largest number."""
Features = dict[str, Tensor]
"""q, k and v of a call, (heads · dimensions, samples · tokens) each."""


class Matrix(NamedTuple):
    """A weight, and the bias of its layer."""

    weight: nn.Parameter
    bias: nn.Parameter | None


def by_use(module: Alone, heads: Heads) -> dict[str, Projection]:
    """W_Q and W_K of a site, in the order of its heads; without one that no matrix makes, or that makes something else too."""

    def hear() -> Features:
        q, k, v = module.run()[1][:3]
        parts = {"q": q, "k": k[:, :: k.shape[1] // heads.groups]} | ({} if v is None else {"v": v})
        return {letter: part.permute(1, 3, 0, 2).flatten(2).flatten(0, 1).float() for letter, part in parts.items()}

    try:
        sizes = {"q": heads.queries, "k": heads.groups}
        found = {letter: _made(hear, matrices(module.site.owner), letter, count) for letter, count in sizes.items()}
    except Exception:  # the module does not run alone: then nothing is said of it
        return {}
    return {letter: projection for letter, projection in found.items() if projection is not None}


def matrices(module: nn.Module) -> list[Matrix]:
    """Every weight of a module and of those in it that has rows and columns."""
    found: dict[nn.Parameter, Matrix] = {}
    for layer in module.modules():
        own = [parameter for parameter in layer._parameters.values() if parameter is not None]
        weights = [parameter for parameter in own if parameter.dim() >= 2]
        bias = layer._parameters.get("bias") if len(weights) == 1 else None
        for weight in weights:
            found.setdefault(weight, Matrix(weight, bias if bias is not None and bias.dim() == 1 else None))
    return list(found.values())


def _made(hear: Callable[[], Features], candidates: Sequence[Matrix], letter: str, heads: int) -> Projection | None:
    """The matrix that makes q or k, and nothing else with these rows."""
    once = hear()
    for matrix in (one for candidate in candidates for one in _with_and_without_bias(candidate)):
        whole = [(parameter, torch.ones_like(parameter)) for parameter in matrix if parameter is not None]
        with elements_multiplied(whole):
            now = hear()
        if not _times(once[letter], now[letter], 2).all():
            continue
        for projection in _by_heads(hear, matrix, letter, heads):
            if _makes_only(hear, once, projection, letter):
                return projection
    return None


def _with_and_without_bias(matrix: Matrix) -> list[Matrix]:
    """Without its bias first: it may belong to something else, and one that is zero need not grow."""
    return [Matrix(matrix.weight, None), *([matrix] if matrix.bias is not None else [])]


def _by_heads(hear: Callable[[], Features], matrix: Matrix, letter: str, heads: int) -> Iterator[Projection]:
    """The rows of a matrix, those of the first head first, along each axis where every row makes one head at most."""
    with torch.enable_grad(), _learning(matrix.weight):
        features = hear()[letter]
        reached = _Reached(matrix.weight, features.reshape(heads, -1).square().sum(dim=1))
    for axis in range(matrix.weight.dim()):
        place = reached.rows(axis)
        if place is None:
            continue
        inputs, rest = divmod(len(place) * (matrix.weight.numel() // matrix.weight.shape[axis]), len(features))
        if inputs > 1 and not rest:  # one number for each feature, or for each head, is a temperature
            yield _projection(matrix, axis, place.to(matrix.weight.device), len(features))


def _projection(matrix: Matrix, axis: int, place: Tensor, outputs: int) -> Projection:
    """Some rows along an axis of a matrix, and as many of its bias, if that has one for each."""
    weight, bias = matrix
    turned = (axis, *(other for other in range(weight.dim()) if other != axis))
    size = weight.shape[axis]
    own = bias if bias is not None and len(bias) == size else None
    return Projection(weight, lambda g: g.permute(turned).reshape(size, -1)[place].reshape(outputs, -1), own, lambda b: b[place])


@contextmanager
def _learning(weight: nn.Parameter) -> Iterator[None]:
    """Inside, a weight has a gradient, also if it is frozen."""
    before = weight.requires_grad
    weight.requires_grad_(True)
    try:
        yield
    finally:
        weight.requires_grad_(before)


class _Reached:
    """Which elements of a weight the gradients of heads reach, asked for by the numbers of the heads in binary."""

    def __init__(self, weight: Tensor, sizes: Tensor) -> None:
        self._heads = len(sizes)
        numbers = torch.arange(self._heads, device=sizes.device)
        bits = [(numbers >> place) % 2 for place in range(max(1, (self._heads - 1).bit_length()))]
        self._by_bit = [tuple(_reached(weight, sizes[bit == value]) for value in (0, 1)) for bit in bits]

    def rows(self, axis: int) -> Tensor | None:
        """The rows along an axis that make a head, head after head; None if one makes several, or heads have not as many."""
        size = self._by_bit[0][0].shape[axis]
        number, made = torch.zeros(size, dtype=torch.long), torch.zeros(size, dtype=torch.bool)
        for place, masks in enumerate(self._by_bit):
            zero, one = (_along(mask, axis) for mask in masks)
            if (zero & one).any():
                return None
            made, number = zero | one, number + (one.long() << place)
        counts = number[made].bincount(minlength=self._heads)
        if not counts[0] or not (counts == counts[0]).all():
            return None
        return torch.where(made, number, self._heads).argsort(stable=True)[: int(made.sum())]


def _reached(weight: Tensor, sizes: Tensor) -> Tensor:
    """Whether each element changes any of these sizes."""
    if not len(sizes) or not sizes.requires_grad:
        return torch.zeros_like(weight, dtype=torch.bool)
    (gradient,) = torch.autograd.grad(sizes.sum(), weight, retain_graph=True, allow_unused=True)
    return torch.zeros_like(weight, dtype=torch.bool) if gradient is None else gradient != 0


def _along(mask: Tensor, axis: int) -> Tensor:
    """For each number along an axis, whether something of it is set."""
    return mask.transpose(0, axis).flatten(1).any(dim=1).cpu()


def _makes_only(hear: Callable[[], Features], once: Features, projection: Projection, letter: str) -> bool:
    """Whether these rows, doubled, double this and leave the others alone."""
    with multiplied(projection, torch.ones(1, dtype=torch.bool)):
        now = hear()
    return all(bool(_times(once[other], now[other], 2 if other == letter else 1).all()) for other in once)


def _times(once: Tensor, now: Tensor, factor: int) -> Tensor:
    """For each feature, whether it is so many times what it was; never for one that is zero."""
    size = once.abs().amax(dim=1)
    return ((now - factor * once).abs().amax(dim=1) <= CLOSE * size).cpu() & (size > 0).cpu()
