"""Find the positions of anyone's model by how they are used.

Positions are a tensor that comes from parameters alone, is added to another before the first attention, differs from token to
token and is the same for every sample, while the other differs between samples. (A decoder that embeds its own tokens has its
own positions, after the attention of the encoder. What is added to the outcome of an attention is told apart: `Search.later`.)
Token embeddings come from parameters alone too, but differ between samples; biases and segments do not differ from token to
token, or take few values. Where padding shifts the positions of each sample (RoBERTa, padded on the left), they are known by
what is looked up: numbers that count. Rows and columns that are added one after the other are positions together. Tokens that
`attention_mask` hides do not count.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from eureka.errors import RequestError
from eureka.patching.attach import Site, attached, find_sites
from eureka.probes.additions import Addition, Sources, with_joint
from eureka.probes.capture import run_alike
from eureka.probes.follow import Follow, Sum, is_table
from eureka.probes.norms import norm_parameters
from eureka.probes.padding import Padding, padding_of


@dataclass(frozen=True)
class Search:
    """What one forward pass says about the positions of a model."""

    learned: tuple[Addition, ...] = ()
    fixed: Sources | None = None
    """Buffers and frozen parameters that are added as positions; empty for positions that are computed anew."""
    zero: tuple[Sources, ...] = ()
    """Learned parameters of each term that is added token by token and is all zero: positions, perhaps."""
    undecided: bool = False
    """Whether none were found, and the samples are alike and leave open whether some sum adds them."""
    later: tuple[Addition, ...] = ()
    """Learned positions that are added after the first attention."""


def search(model: nn.Module, inputs: Any, sites: Sequence[Site]) -> Search:
    """Look for positions in one pass; if there are none, in a second one on the inputs turned round as well: samples that are
    alike differ then. A model that does not take those (they hold sizes, or places) has had its say."""
    once = _without_norms(model, additions(model, inputs, sites))
    names = set(trainable(model))
    found = _judge(once, once, names)
    if found.learned or found.fixed is not None:
        return found
    try:
        turned = _without_norms(model, additions(model, _turned_round(inputs), sites))
    except RequestError:
        turned = []
    if [addition.rest.shape for addition in once] == [addition.rest.shape for addition in turned]:
        found = _judge(once, [a.joined(b) for a, b in zip(once, turned, strict=True)], names)
    return replace(found, undecided=found.undecided and _alike(inputs))


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters by name, without frozen ones: Whisper keeps its sinusoids in one."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def additions(model: nn.Module, inputs: Any, sites: Sequence[Site]) -> list[Addition]:
    """The sums of one pass that may add positions."""
    follow = Follow(model)
    with attached(model, sites, observer=follow.reached), _entered(model, follow), follow:
        run_alike(model, inputs)
    return sums_of(follow, padding_of(inputs))


def _without_norms(model: nn.Module, found: Sequence[Addition]) -> list[Addition]:
    """The bias of a norm over each head is a table too, of heads and features, and no positions."""
    norms = norm_parameters(model)
    return [addition for addition in found if not addition.sources or not addition.sources <= norms]


def sums_of(follow: Follow, padding: Padding) -> list[Addition]:
    """The sums of a pass, samples first; none if it did not reach an attention."""
    if not follow.past:
        return []
    channels = _channels_first(follow.sums)
    found = [_samples_first(follow.attention, one, padding, channels_first=one.place in channels) for one in follow.sums]
    alike: defaultdict[Sources, count[int]] = defaultdict(count)
    return [replace(one, number=next(alike[one.sources])) for one in with_joint(found)]


@contextmanager
def _entered(model: nn.Module, follow: Follow) -> Iterator[None]:
    """Follow nothing inside attention that is written out, or is no site: biases that it adds to its logits are no positions.

    A module that is all of the model, or embeds, adds positions too: it is followed up to its first product of q and k. So are
    those of Hugging Face, whose eager attention adds relative positions to its logits.
    """
    named, whole, found = dict(model.named_modules()), set(model.parameters()), find_sites(model)
    own = [site.module for site in found.sites if site.kind == "by_hand"]
    own += [named.get(name, model) for name, _ in found.refused]
    hooks = [module.register_forward_pre_hook(follow.arm if _embeds(module, whole) else follow.enter) for module in own]
    eager = [site.module for site in found.sites if site.kind == "hugging_face"]
    hooks += [module.register_forward_pre_hook(follow.arm) for module in eager]
    hooks += [module.register_forward_hook(follow.leave) for module in (*own, *eager)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _embeds(module: nn.Module, whole: set[nn.Parameter]) -> bool:
    """Whether a module is all of the model, or embeds its inputs itself."""
    return set(module.parameters()) == whole or any(isinstance(part, nn.Embedding) for part in module.modules())


def _channels_first(sums: Sequence[Sum]) -> frozenset[int]:
    """The places of sums whose features lie right behind the samples, as a convolution leaves them.

    A row of positions shows it, which is the same along the last axis and differs along the axes before; so it is with the sums
    before it and after it.
    """
    rows = [one for one in sums if one.rest.dim() > 3 and _is_row(one.term.expand(one.rest.shape))]
    pairs = [(one, row) for row in rows for one in sums if one.rest.shape == row.rest.shape]
    return frozenset(one.place for one, row in pairs if one is row or row.place in one.parts or one.place in row.parts)


def _is_row(term: Tensor) -> bool:
    return _is_same(term, -1) and not _is_same(term, 1) and not all(_is_same(term, axis) for axis in range(2, term.dim() - 1))


def _samples_first(attention: tuple[Site, int] | None, one: Sum, padding: Padding, *, channels_first: bool) -> Addition:
    own, whole = one.term[(None,) * (one.rest.dim() - one.term.dim())], one.term.expand(one.rest.shape)
    axis = 0 if attention is None else _sample_axis(whole, *attention)
    own, term, rest = (x.movedim(axis, 0) for x in (own, whole, one.rest))
    if channels_first and axis == 0:
        own, term, rest = (x.movedim(1, -1) for x in (own, term, rest))
    more = 0 if attention is None else _more_sample_axes(rest, attention[1])
    spans = is_table(own[(0,) * (1 + more)])
    term, rest = term.flatten(0, more), rest.flatten(0, more)
    real = padding.real(rest, of_decoder=one.late)
    named = one.sources, one.rest_sources
    return Addition(term, rest, *named, spans, one.counted, real, one.deep, place=one.place, parts=one.parts)


def _more_sample_axes(x: Tensor, samples: int) -> int:
    """How many axes behind the first are samples to the first attention too: the channels of a series, the frames of a film."""
    return next((n for n in range(1, x.dim() - 2) if math.prod(x.shape[: n + 1]) == samples != x.shape[0]), 0)


def _sample_axis(term: Tensor, site: Site, samples: int) -> int:
    """The first attention call knows the number of samples, or a multiple of it where heads or windows are among them; where it
    fits two axes, its module says which.

    Tokens may come first only after the sum: a term that is the same along the first axis alone was added before.
    """
    fits = [axis for axis in (0, 1) if term.shape[axis] and samples % term.shape[axis] == 0]
    if len(fits) == 1:
        return fits[0]
    exact = [axis for axis in fits if term.shape[axis] == samples]
    multihead = isinstance(site.module, nn.MultiheadAttention)
    if exact == [0] or (exact == [1] and multihead):
        return exact[0]
    tokens_first = exact == [1] or (multihead and not site.module.batch_first)
    return int(tokens_first and not (_is_same(term, 0) and not _is_same(term, 1)))


def _is_same(x: Tensor, axis: int) -> bool:
    return bool((x == x.narrow(axis, 0, 1)).all())


def _judge(measured: Sequence[Addition], judged: Sequence[Addition], parameters: set[str]) -> Search:
    """`measured` has the samples that count, `judged` perhaps more of them."""
    pairs = list(zip(measured, judged, strict=True))
    early = [(addition, more) for addition, more in pairs if not addition.deep]
    positions = [addition for addition, more in early if more.adds_positions()]
    deep = [addition for addition, more in pairs if addition.deep and more.is_steady() and more.adds_positions()]
    later = [addition for addition in deep if addition.sources & parameters]
    own = [addition for addition in positions if addition.sources & parameters]
    fixed = [addition.sources for addition in positions if not addition.sources & parameters]
    blank = [a for a, more in early if a.spans_tokens and not a.term.any() and more.varies()]
    blank = [a for a in blank if a.sources.isdisjoint(a.rest_sources)]  # a recurrence of the content begins with zero too
    zero = [a.sources & parameters for a in blank]
    undecided = not positions and any(more.is_undecided() for _, more in early)
    all_fixed = frozenset[str]().union(*fixed) if fixed else None
    return Search(tuple(own), all_fixed, tuple(filter(None, zero)), undecided, tuple(later))


def _alike(inputs: Any) -> bool:
    """Whether the samples of a batch are the same, or there is one."""
    given = tree_leaves(list(inputs.values()) if isinstance(inputs, Mapping) else inputs)
    return all(bool((x == x[:1]).all()) for x in given if isinstance(x, Tensor) and x.dim() > 0)


def _turned_round(inputs: Any) -> Any:
    """The last token first, the last pixel first; a batch of samples that are alike stays one, and places stay places."""
    if isinstance(inputs, Mapping):
        return {key: value if key == "position_ids" else _turned_round(value) for key, value in inputs.items()}
    return tree_map(lambda x: x.flip(tuple(range(x.dim()))) if isinstance(x, Tensor) else x, inputs)
