"""Find the positions of anyone's model by how they are used.

Positions are a tensor that comes from parameters alone, is added to another before the first attention, differs from token to
token and is the same for every sample, while the other differs between samples. (A decoder that embeds its own tokens has its own
positions, after the attention of the encoder.) Token embeddings come from parameters alone too,
but differ between samples; biases and segments do not differ from token to token, or take few values. Where padding shifts the
positions of each sample (RoBERTa, padded on the left), they are known by what is looked up: numbers that count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from eureka.patching.attach import AttentionCall, Site, attached, find_sites
from eureka.probes.capture import run_alike

STEADY = 0.1
"""The variance of positions over samples, as a share of that over tokens, is less than this."""
VARIES = 1e-4
"""That of content is more than this, and ten times that of positions."""

aten = torch.ops.aten
ATTENTION = re.compile("scaled_dot_product|softmax")
"""Operations of an attention; what comes out of them counts as data, even if all that goes in was looked up in tables."""
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
    number: int
    """Its place among the additions of a pass."""

    @property
    def ratio(self) -> float:
        """rms(term) / rms(rest)."""
        return (_rms(self.term) / _rms(self.rest).clamp_min(torch.finfo(torch.float32).tiny)).item()

    def joined(self, other: Addition) -> Addition:
        """The samples of both."""
        term, rest = torch.cat([self.term, other.term]), torch.cat([self.rest, other.rest])
        return replace(self, term=term, rest=rest)

    def adds_positions(self) -> bool:
        """Whether the term is positions and the rest is content."""
        over_tokens = _over_tokens(self.term)
        if over_tokens > 0 and self.counted and _over_samples(self.rest).any():
            return True
        if not over_tokens > 0 or not _mostly_distinct(self.term[0]):
            return False
        samples, content = _over_samples(self.term), _over_samples(self.rest)
        floor = _over_tokens(self.rest)
        typical = (samples.median() / over_tokens).item()  # padding may move the positions of a few tokens
        return (
            typical < STEADY
            and content.mean().item() > max(VARIES, 10 * typical) * floor
            and samples.mean().item() * floor <= content.mean().item() * over_tokens
        )


@dataclass(frozen=True)
class Search:
    """What one forward pass says about the positions of a model."""

    learned: tuple[Addition, ...] = ()
    fixed: Sources | None = None
    """Buffers and frozen parameters that are added as positions; empty for positions that are computed anew."""
    zero: tuple[Sources, ...] = ()
    """Learned parameters of each term that is added token by token and is all zero: positions, perhaps."""


class Follow(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows which tensors come from parameters and buffers alone, and keeps the sums they are part of.

    After the first attention only sums of two such tensors are kept: a decoder that embeds its own tokens.
    Tensors are known by their storage, which views share. They are kept alive, so that no storage is used twice.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.additions: list[tuple[Tensor, Tensor, Sources, Sources, bool]] = []
        self.attention: tuple[Site, int] | None = None
        """The first site that was called, and the samples that it was called with."""
        self.past = False
        """Whether there was an attention, at a site or not."""
        self._inside = 0
        self._counted: set[int] = set()
        self._sources: dict[int, Sources] = {}
        self._alive: list[Tensor] = []
        for name, tensor in (*model.named_parameters(), *model.named_buffers(), *_plain_tensors(model)):
            self._register(tensor, frozenset({name}))

    def reached(self, site: Site, call: AttentionCall) -> None:
        """An observer of attention calls."""
        self.past = True
        if self.attention is None:
            self.attention = site, call.q.shape[0]

    def enter(self, *_: Any) -> None:
        """A hook: what is computed from here on counts as data."""
        self.past = True
        self._inside += 1

    def leave(self, *_: Any) -> None:
        """A hook: the end of that."""
        self._inside -= 1

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        sources = self.before(func, args, kwargs)
        result = func(*args, **kwargs)
        self.after(func, args, kwargs, result, sources)
        return result

    def before(self, func: Any, args: Any, kwargs: Any) -> Sources | None:
        """Keep an addition; where the result of the operation will come from."""
        if func.overloadpacket in (aten.add, aten.add_):
            self._keep_addition(args[0], args[1], kwargs.get("alpha", 1))
        return None if self._inside or ATTENTION.search(func.name()) else self._of_inputs(tree_leaves((args, kwargs)))

    def after(self, func: Any, args: Any, kwargs: Any, result: Any, sources: Sources | None) -> None:
        """Note where the result comes from, and what was written into."""
        if func.overloadpacket is aten.embedding and _count(args[1]):
            self._counted.add(_storage(result))
        named = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
        written = [
            named[argument.name] for argument in func._schema.arguments if argument.name in named and _is_written(argument)
        ]
        self._note(tree_leaves(written), tree_leaves(result), sources)

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
            if sources is None or rest.shape != shape or self._inside or (self.past and others is None):
                continue
            copies = term.detach() * factors[0], rest.detach() * factors[1]  # add_ is about to overwrite one of them
            self.additions.append((*copies, sources, others or frozenset(), _storage(term) in self._counted))


def search(model: nn.Module, inputs: Any, sites: Sequence[Site]) -> Search:
    """Look for positions in one pass; if all samples are alike, in a second one on the inputs turned round as well."""
    once = additions(model, inputs, sites)
    names = set(trainable(model))
    found = _judge(once, once, names)
    if found.learned or found.fixed is not None:
        return found
    turned = additions(model, _turned_round(inputs), sites)
    if [addition.rest.shape for addition in once] != [addition.rest.shape for addition in turned]:
        return found
    return _judge(once, [a.joined(b) for a, b in zip(once, turned, strict=True)], names)


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, without frozen ones: Whisper keeps its sinusoids in one."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def is_table(x: Tensor) -> bool:
    """Whether two axes or more are longer than one: tokens and features."""
    return sum(size > 1 for size in x.shape) >= 2


def additions(model: nn.Module, inputs: Any, sites: Sequence[Site]) -> list[Addition]:
    """The sums of one pass that may add positions."""
    follow = Follow(model)
    with attached(model, sites, observer=follow.reached), _entered(model, follow), follow:
        run_alike(model, inputs)
    return sums_of(follow)


def sums_of(follow: Follow) -> list[Addition]:
    """The sums of a pass, samples first; none if it did not reach an attention."""
    if not follow.past:
        return []
    return [_samples_first(follow.attention, number, *addition) for number, addition in enumerate(follow.additions)]


@contextmanager
def _entered(model: nn.Module, follow: Follow) -> Iterator[None]:
    """Follow nothing inside attention that is no site: biases that it adds to its logits are no positions."""
    named = dict(model.named_modules())
    own = [named.get(name, model) for name, _ in find_sites(model, written_out=False).refused]
    hooks = [module.register_forward_pre_hook(follow.enter) for module in own]
    hooks += [module.register_forward_hook(follow.leave) for module in own]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _samples_first(
    attention: tuple[Site, int] | None, number: int, term: Tensor, rest: Tensor, sources: Sources, others: Sources, counted: bool
) -> Addition:
    axis = 0 if attention is None else _sample_axis(rest, *attention)
    own = term[(None,) * (rest.dim() - term.dim())].movedim(axis, 0)
    whole = term.expand(rest.shape).movedim(axis, 0)
    return Addition(whole, rest.movedim(axis, 0), sources, others, is_table(own[0]), counted, number)


def _sample_axis(rest: Tensor, site: Site, samples: int) -> int:
    """The first attention call knows the number of samples; where it fits two axes, its module says which."""
    fits = [axis for axis in (0, 1) if rest.shape[axis] == samples]
    return fits[0] if len(fits) == 1 else int(isinstance(site.module, nn.MultiheadAttention) and not site.module.batch_first)


def _judge(measured: Sequence[Addition], judged: Sequence[Addition], parameters: set[str]) -> Search:
    """`measured` has the samples that count, `judged` perhaps more of them."""
    pairs = list(zip(measured, judged, strict=True))
    positions = [addition for addition, more in pairs if more.adds_positions()]
    own = [addition for addition in positions if addition.sources & parameters]
    fixed = [addition.sources for addition in positions if not addition.sources & parameters]
    zero = [a.sources & parameters for a, more in pairs if a.spans_tokens and not a.term.any() and _over_samples(more.rest).any()]
    return Search(tuple(own), frozenset[str]().union(*fixed) if fixed else None, tuple(filter(None, zero)))


def _turned_round(inputs: Any) -> Any:
    """The last token first, the last pixel first; a batch of samples that are alike stays one, and places stay places."""
    if isinstance(inputs, Mapping):
        return {key: value if key == "position_ids" else _turned_round(value) for key, value in inputs.items()}
    return tree_map(lambda x: x.flip(tuple(range(x.dim()))) if isinstance(x, Tensor) else x, inputs)


def _count(places: Tensor) -> bool:
    """Whether (…, tokens) numbers go up by one, but for padding, and are as many as tokens, or nearly."""
    steps = places.diff(dim=-1)
    moves = steps[steps != 0]
    return len(moves) > 0 and (moves == 1).float().mean().item() > 0.75 and 2 * len(torch.unique(places)) > places.shape[-1]


def _plain_tensors(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Tensors that are attributes of modules but neither parameters nor buffers: VideoMAE keeps its sinusoids so."""
    for name, module in model.named_modules():
        yield from ((f"{name}.{key}".lstrip("."), value) for key, value in vars(module).items() if isinstance(value, Tensor))


def _over_samples(x: Tensor) -> Tensor:
    """The variance of each token over the samples."""
    return x.float().var(dim=0, correction=0).mean(dim=-1)


def _over_tokens(x: Tensor) -> float:
    """The variance over tokens; over rows or columns, whichever is less, if tokens lie in a plane."""
    return min(x.float().var(dim=axis, correction=0).mean().item() for axis in range(1, x.dim() - 1))


def _mostly_distinct(tokens: Tensor) -> bool:
    """Whether more than half of the tokens have a vector of their own; segments have few."""
    rows = tokens.flatten(0, -2)
    return 2 * len(torch.unique(rows, dim=0)) > len(rows)


def _rms(x: Tensor) -> Tensor:
    return x.float().square().mean().sqrt()


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
