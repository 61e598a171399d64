"""Follow a forward pass: which tensors come from parameters and buffers alone, and the sums that they are part of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from eureka.attention.mask import Bias
from eureka.patching.attach import AttentionCall, Site
from eureka.probes.additions import Sources

aten = torch.ops.aten
ATTENTION = re.compile("scaled_dot_product|softmax")
"""Operations of an attention; what comes out of them counts as data, even if all that goes in was looked up in tables."""


class Sum(NamedTuple):
    """Two tensors that were added, of which the first comes from parameters alone."""

    term: Tensor
    rest: Tensor
    sources: Sources
    rest_sources: Sources
    counted: bool
    """Whether the term was looked up by numbers that count from token to token."""
    late: bool
    """Whether there was an attention before."""
    deep: bool
    """Whether there was one, and the rest comes from data: it is what the attention made of it, or of something else."""
    place: int
    """Its place among the sums of the pass."""
    parts: frozenset[int]
    """The sums that the two were computed from, by their places."""


class Follow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows which tensors come from parameters and buffers alone, and keeps the sums they are part of.

    After the first attention only sums of two such tensors are kept, as of a decoder that embeds its own tokens, and sums with a
    term of its own for each token. A sum that reaches an attention only by its mask, as a bias of the logits, is none of them.
    Tensors are known by their storage, which views share. They are kept alive, so that no storage is used twice.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sums: list[Sum] = []
        self._parts: dict[int, frozenset[int]] = {}
        """Of each storage the sums that it was computed from, by their places; after the first attention only of those that come
        from parameters and buffers alone, which are kept anyway."""
        self._content: frozenset[int] = frozenset()
        """The sums that q, k or v of an attention were computed from."""
        self._masks: frozenset[int] = frozenset()
        """Those that a mask was computed from."""
        self.attention: tuple[Site, int] | None = None
        """The first site that was called, and the samples that it was called with."""
        self.past = False
        """Whether there was an attention, at a site or not."""
        self._armed, self._inside, self._noted = 0, False, 0
        self._counted: set[int] = set()
        self._sources: dict[int, Sources] = {}
        self._alive: list[Tensor] = []
        for name, tensor in (*model.named_parameters(), *model.named_buffers(), *_plain_tensors(model)):
            self._register(tensor, frozenset({name}))
        self._raw = frozenset(self._sources)

    @property
    def sums(self) -> list[Sum]:
        """Those that were not added to logits."""
        biases = self._masks - self._content
        return [one for place, one in enumerate(self._sums) if place not in biases]

    def reached(self, site: Site, call: AttentionCall) -> None:
        """An observer of attention calls."""
        self.past = True
        if self.attention is None:
            self.attention = site, call.q.shape[0]
        self._content |= self._parts_of((call.q, call.k, call.v))
        if isinstance(call.mask, Bias):
            self._masks |= self._parts_of((call.mask.bias,))

    def arm(self, *_: Any) -> None:
        """A hook: what is computed from the first product of q and k on counts as data."""
        self._armed += 1

    def enter(self, *_: Any) -> None:
        """A hook: what is computed from here on counts as data."""
        self._armed += 1
        self._inside = self.past = True

    def leave(self, *_: Any) -> None:
        """A hook: the end of that."""
        self._armed -= 1
        self._inside = self._inside and self._armed > 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        sources = self.before(func, args, kwargs)
        result = func(*args, **kwargs)
        self.after(func, args, kwargs, result, sources)
        return result

    def before(self, func: Any, args: Any, kwargs: Any) -> Sources | None:
        """Keep an addition; where the result of the operation will come from."""
        if self._armed and self._attends(func, args):
            self._inside = self.past = True
        if func.overloadpacket in (aten.add, aten.add_):
            self._keep_addition(args[0], args[1], kwargs.get("alpha", 1))
        return None if self._inside or ATTENTION.search(func.name()) else self._of_inputs(tree_leaves((args, kwargs)))

    def after(self, func: Any, args: Any, kwargs: Any, result: Any, sources: Sources | None) -> None:
        """Note where the result comes from, and what was written into."""
        if not self.past or sources is not None:
            self._note_parts((args, kwargs), result)
        if func.overloadpacket is aten.embedding and _count(args[1]):
            self._counted.add(_storage(result))
        named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
        written = [
            named[argument.name] for argument in func._schema.arguments if argument.name in named and _is_written(argument)
        ]
        self._note(tree_leaves(written), tree_leaves(result), sources)

    def _note_parts(self, given: Any, result: Any) -> None:
        """Note which sums the result was computed from; those of this very operation are the ones that no storage has yet."""
        new = frozenset(range(self._noted, len(self._sums)))
        self._noted = len(self._sums)
        parts = self._parts_of(tree_leaves(given)) | new
        for tensor in tree_leaves(result) if parts else ():
            if isinstance(tensor, Tensor):
                self._parts[_storage(tensor)] = self._parts_of((tensor,)) | parts
                self._alive.append(tensor)

    def _parts_of(self, tensors: Iterable[Any]) -> frozenset[int]:
        found = (self._parts.get(_storage(tensor)) for tensor in tensors if isinstance(tensor, Tensor))
        return frozenset[int]().union(*filter(None, found))

    def _attends(self, func: Any, args: Any) -> bool:
        """Whether an operation multiplies two tensors of which neither is a parameter, as q and k, or is a softmax."""
        if func.overloadpacket in (aten.bmm, aten.baddbmm):
            return not any(_storage(factor) in self._raw for factor in args[-2:])
        return ATTENTION.search(func.name()) is not None

    def _note(self, written: Sequence[Any], results: Sequence[Any], sources: Sources | None) -> None:
        for tensor in written:
            if isinstance(tensor, Tensor):
                self._sources.pop(_storage(tensor), None)
        for tensor in (*written, *results):
            if sources is not None and isinstance(tensor, Tensor) and _storage(tensor) not in self._sources:
                self._register(tensor, sources)

    def _register(self, tensor: Tensor, sources: Sources) -> None:
        key = _storage(tensor)
        if key:
            self._sources[key] = self._sources.get(key, frozenset()) | sources
            self._alive.append(tensor)

    def _of_inputs(self, given: Sequence[Any]) -> Sources | None:
        """Where the result of an operation comes from; integers only choose, as in a lookup. None if from data."""
        tensors = [value for value in given if isinstance(value, Tensor)]
        deciding = [tensor for tensor in tensors if _is_number(tensor)] or tensors
        found = [self._sources.get(_storage(tensor)) for tensor in deciding]
        known = [sources for sources in found if sources is not None]
        return frozenset[str]().union(*known) if len(known) == len(found) else None

    def _keep_addition(self, a: Any, b: Any, alpha: float) -> None:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.is_floating_point() and b.is_floating_point()):
            return
        shape = torch.broadcast_shapes(a.shape, b.shape)  # type: ignore[no-untyped-call]
        if len(shape) < 3:
            return
        for term, rest, factors in ((a, b, (1, alpha)), (b, a, (alpha, 1))):
            sources, others = self._of_inputs([term]), self._of_inputs([rest])
            deep = self.past and others is None
            if sources is None or rest.shape != shape or self._inside or (deep and not is_table(term)):
                continue
            copies = term.detach() * factors[0], rest.detach() * factors[1]  # add_ is about to overwrite one of them
            counted, place, parts = _storage(term) in self._counted, len(self._sums), self._parts_of((a, b))
            self._sums.append(Sum(*copies, sources, others or frozenset(), counted, self.past, deep, place, parts))


def is_table(x: Tensor) -> bool:
    """Whether two axes or more are longer than one: tokens and features."""
    return sum(size > 1 for size in x.shape) >= 2


def _count(places: Tensor) -> bool:
    """Whether (…, tokens) numbers go up by one and are as many as tokens, or nearly; one that is repeated may be padding."""
    if places.dim() == 0 or not places.numel():
        return False
    values, times = torch.unique(places, return_counts=True)
    common = values[times.argmax()] if times.max() * places.shape[-1] > places.numel() else None
    kept = torch.ones_like(places, dtype=torch.bool) if common is None else places != common
    steps = places.diff(dim=-1)[kept[..., 1:] & kept[..., :-1]]
    moves = steps[steps != 0]
    few = 2 * len(torch.unique(places[kept])) <= int(kept.sum(dim=-1).max())
    return len(moves) > 0 and (moves == 1).float().mean().item() > 0.75 and not few


def _plain_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that are attributes of modules but neither parameters nor buffers: VideoMAE keeps its sinusoids so."""
    for name, module in model.named_modules():
        yield from ((f"{name}.{key}".lstrip("."), value) for key, value in vars(module).items() if isinstance(value, Tensor))


def _storage(tensor: Tensor) -> int:
    """The address of a tensor's storage; 0 if it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):  # sparse
        return 0


def _is_number(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and bool(argument.alias_info.is_write)
