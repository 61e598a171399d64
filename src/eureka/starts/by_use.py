"""Find W_Q and W_K of a site by what they do, where no name tells them: doubled, they double q or k and nothing else.

The module with the projections is run alone, on what it gets in a pass of the model. A matrix makes q if q doubles with it and
its bias. Which row makes which feature is asked in binary: the rows with a one at some place of their number are doubled, and the
features that double have a one there too. A few passes tell every row, in whatever order they lie. Doubling is exact in floating
point, and the matrix gets its own bits back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from eureka.probes.projections import Heads, Projection
from eureka.starts.alone import Alone, doubled, elements_doubled

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
        found = {letter: _made(hear, matrices(module.site.owner), letter) for letter in "qk"}
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


def _made(hear: Callable[[], Features], candidates: Sequence[Matrix], letter: str) -> Projection | None:
    """The matrix that makes q or k, and nothing else with these rows."""
    once = hear()
    for matrix in (one for candidate in candidates for one in _with_and_without_bias(candidate)):
        whole = [(parameter, torch.ones_like(parameter)) for parameter in matrix if parameter is not None]
        with elements_doubled(whole):
            now = hear()
        if not _times(once[letter], now[letter], 2).all():
            continue
        projection = _in_order(hear, once, matrix, letter)
        if projection is not None and _makes_only(hear, once, projection, letter):
            return projection
    return None


def _with_and_without_bias(matrix: Matrix) -> list[Matrix]:
    """Without its bias first: it may belong to something else, and one that is zero need not grow."""
    return [Matrix(matrix.weight, None), *([matrix] if matrix.bias is not None else [])]


def _in_order(hear: Callable[[], Features], once: Features, matrix: Matrix, letter: str) -> Projection | None:
    """The rows of a matrix in the order of the features that they make; None if a feature has no row of its own."""
    weight, order, axes = matrix.weight, torch.zeros(len(once[letter]), dtype=torch.long), list[int]()
    for axis, size in enumerate(weight.shape):
        numbers = _numbers(hear, once[letter], matrix, axis, letter)
        if numbers is not None:
            axes.append(axis)
            order = order * size + numbers
    if not axes or len(torch.unique(order)) != len(order):
        return None
    others = [axis for axis in range(weight.dim()) if axis not in axes]
    outputs, turned, place = math.prod(weight.shape[axis] for axis in axes), (*axes, *others), order.to(weight.device)
    bias = matrix.bias if len(axes) == 1 and matrix.bias is not None and len(matrix.bias) == outputs else None
    return Projection(weight, lambda g: g.permute(turned).reshape(outputs, -1)[place], bias, lambda b: b[place])


def _numbers(hear: Callable[[], Features], once: Tensor, matrix: Matrix, axis: int, letter: str) -> Tensor | None:
    """The number along an axis that makes each feature; None if features are made of several numbers: an axis of inputs."""
    size = matrix.weight.shape[axis]
    numbers = torch.zeros(len(once), dtype=torch.long)
    for place in range((size - 1).bit_length()):
        ones = (torch.arange(size) >> place) % 2 == 1
        with elements_doubled(_parts(matrix, axis, ones)):
            now = hear()[letter]
        twice, same = _times(once, now, 2), _times(once, now, 1)
        if not (twice ^ same).all():
            return None
        numbers += twice.long() << place
    return numbers if size > 1 else None


def _makes_only(hear: Callable[[], Features], once: Features, projection: Projection, letter: str) -> bool:
    """Whether these rows, doubled, double this and leave the others alone."""
    with doubled(projection, torch.ones(1, dtype=torch.bool)):
        now = hear()
    return all(bool(_times(once[other], now[other], 2 if other == letter else 1).all()) for other in once)


def _parts(matrix: Matrix, axis: int, chosen: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
    """Some numbers along an axis of a weight, and as many of its bias, if it has one for each."""
    shape = [-1 if place == axis else 1 for place in range(matrix.weight.dim())]
    parts = [(matrix.weight, chosen.to(matrix.weight.device).view(shape))]
    if matrix.bias is not None and len(matrix.bias) == len(chosen):
        parts.append((matrix.bias, chosen.to(matrix.bias.device)))
    return parts


def _times(once: Tensor, now: Tensor, factor: int) -> Tensor:
    """For each feature, whether it is so many times what it was; never for one that is zero."""
    size = once.abs().amax(dim=1)
    return ((now - factor * once).abs().amax(dim=1) <= CLOSE * size).cpu() & (size > 0).cpu()
