"""Clear start: positions as large as the content, logits with a spread, before the first step of training."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from eureka.errors import RequestError
from eureka.formats import listing, measurement, span
from eureka.patching.attach import Found, Site, by_hand, find_sites
from eureka.probes.capture import check_model, left_alone
from eureka.probes.position_kinds import fixed_names, why_none
from eureka.probes.positions import Search, search
from eureka.starts.calibrate import Kept
from eureka.starts.clarify import clarify, positions_of
from eureka.starts.draw import draw
from eureka.starts.fresh import sign_of_training
from eureka.starts.logits import Logits

LEAST, MOST = 1e-6, 1e6
"""What may be asked for; beyond it, single precision is lost."""
MOST_NAMES = 5
"""How many sites a note lists by name."""
BESIDE = re.compile("mask|position_ids|token_type_ids|labels?$")
"""Keywords of inputs that are no content."""


@dataclass(frozen=True)
class PositionRow:
    """Learned positions, and rms(positions) / rms(content) where they are added."""

    parameters: tuple[str, ...]
    before: float
    after: float
    drawn: bool = False
    """Whether they were zero, and their directions were drawn."""


@dataclass(frozen=True)
class LogitsRow:
    """A site, and the row spread of the logits of each head."""

    index: int
    site: str
    heads: int
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class ClearStart:
    """What `clear_start` found and changed; `print` shows it as a table."""

    model: str
    """The name of its class."""
    positions: tuple[PositionRow, ...]
    logits: tuple[LogitsRow, ...]
    notes: tuple[str, ...]
    """What was drawn and what could not be done, a sentence each."""
    _kept: Kept = field(repr=False, compare=False)

    def undo(self) -> None:
        """Put every parameter that was changed back, bit for bit, also after training; a second call does nothing."""
        self._kept.restore()

    def __str__(self) -> str:
        ratios = [
            (listing(row.parameters), "drawn" if row.drawn else "", measurement(row.before), measurement(row.after))
            for row in self.positions
        ]
        spreads = [(row.site, str(row.heads), span(row.before), span(row.after)) for row in self.logits]
        table = [
            *([("positions / content", "", "before", "after"), *ratios] if ratios else []),
            *([("row spread of the logits", "heads", "before", "after"), *spreads] if spreads else []),
        ]
        widths = [max(len(row[column]) for row in table) for column in range(4)] if table else []
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([f"clear start of {self.model}", *lines, *(f"note: {note}" for note in self.notes)])


@torch.no_grad()
def clear_start(
    model: nn.Module,
    inputs: Any,
    *,
    positions: float | None = 1.0,
    logits: float | None = 1.0,
    trained: bool = False,
    seed: int = 0,
) -> ClearStart:
    """Rescale a fresh model, in place, so that it can see positions and tell keys apart from its first step on.

    Learned positions P are scaled, then W_Q and W_K of each head, layer after layer, until on this batch

        rms(P) = positions · rms(content that P is added to)
        mean_i std_j(q_i·k_j/√d) = logits,   over the keys j that row i sees, and rows that see two or more

    Directions stay as they were drawn; only lengths change. Positions that are zero have no direction: it is drawn from a normal
    distribution. Buffers, modes, random state and all other parameters stay. It takes about one pass over the batch a layer, in
    eval mode; batch norms see the statistics of the batch, as in training.

    Args:
        model: a compiled one (`torch.compile`) is run uncompiled
        inputs: one batch, as the model takes it (a mapping is passed by keyword); if all samples are alike, positions are told
            from content by running it backwards as well. Tokens that its `attention_mask` hides do not count for rms(P) and
            rms(content).
        positions: None leaves positions alone; if there are none that are learned, the result has a note, or with
            ``logits=None`` it is an error
        logits: None leaves W_Q and W_K alone; it is meant for plain softmax
        trained: rescale a model that was trained, too. A model counts as trained if the weight or bias of a normalisation
            layer differs between features: fresh ones are constant. This misses a trained model without such layers, or with
            frozen ones.
        seed: for positions that are zero

    >>> from torch import nn
    >>> model = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> start = clear_start(model, torch.randn(4, 6, 8), positions=None)
    >>> [round(spread, 3) for spread in start.logits[0].after]
    [1.0, 1.0]
    >>> start.undo()
    """
    model = getattr(model, "_orig_mod", model)  # of torch.compile
    _check(model, inputs, positions, logits, seed)
    found = _find(model, trained)
    names = {site.index: site.name or type(site.module).__name__ for site in found.sites}
    kept, notes = Kept(), list[str]()
    with _undone_on_error(kept), left_alone(model), _batch_statistics(model):
        measured = Logits(model, inputs, found.sites)
        before = measured.measure()
        lost = [site for site in found.sites if site.kind == "by_hand" and site.index not in before]
        if not before and found.sites and not lost:
            raise RequestError(
                f"no attention call of {type(model).__name__} was seen on these inputs: it was not reached, its code attends in a"
                " way that could not be followed, or the model runs compiled (pass it without torch.compile)."
            )
        refused = measured.refused() if logits is not None else {}
        left = [*found.refused, *((names[site.index], _why_lost(site)) for site in lost)]
        left += [(names[index], why) for index, why in refused.items()]
        possible = logits is not None and len(refused) < len(before)
        if positions is None and not possible:
            raise RequestError(f"W_Q and W_K of {type(model).__name__} cannot be rescaled: {' '.join(left[0])}.")
        rows = _positions(model, inputs, found.sites, positions, int(seed), kept, notes) if positions else []
        if not rows and not possible:
            raise RequestError(notes[-1] if logits is None else f"{notes[-1].removesuffix('.')}; {' '.join(left[0])}.")
        after = measured.sharpen(logits, kept) if logits is not None else {}
    if logits is not None:
        idle = [names[site.index] for site in found.sites if site.index not in before and site not in lost]
        notes += _logits_notes(left, idle, measured.operators)
    spreads = [_logits_row(index, names[index], measured.heads[index].queries, before[index], after[index]) for index in after]
    return ClearStart(type(model).__name__, tuple(rows), tuple(spreads), tuple(notes), kept)


def _find(model: nn.Module, trained: bool) -> Found:
    """The sites of a fresh model."""
    if not trained and (sign := sign_of_training(model)) is not None:
        raise RequestError(
            f"{type(model).__name__} looks trained: {sign}, which is constant in a fresh model; pass trained=True to rescale it."
        )
    found = find_sites(model)
    if not found.sites and not found.refused:
        raise RequestError(f"no attention found in {type(model).__name__} ({found.searched} modules searched).")
    return found


def _check(model: nn.Module, inputs: Any, positions: float | None, logits: float | None, seed: int) -> None:
    check_model(model)
    _check_one_process(model)
    for name, parameter in model.named_parameters():
        if parameter.is_meta or is_lazy(parameter):
            raise RequestError(f"{name} of {type(model).__name__} has no values yet (meta or lazy); initialise the model first.")
    _check_batch(inputs)
    if positions is None and logits is None:
        raise RequestError("positions=None and logits=None leave nothing to do; give at least one of them.")
    for name, value in (("positions", positions), ("logits", logits)):
        if value is not None and not (_is_number(value) and LEAST <= value <= MOST):
            raise RequestError(f"{name} is a number from {LEAST:g} to {MOST:g}, or None, not {value!r}.")
    if not (_is_number(seed) and isinstance(seed, Integral) and 0 <= seed < 2**63):
        raise RequestError(f"seed is a whole number from 0 to 2**63 - 1, not {seed!r}.")


def _check_one_process(model: nn.Module) -> None:
    """Refuse a model that is wrapped or sharded: each process would scale its part by what it measures on a batch of its own."""
    groups = [module.process_group for module in model.modules() if isinstance(module, nn.parallel.DistributedDataParallel)]
    meshes = [parameter.device_mesh for parameter in model.parameters() if hasattr(parameter, "device_mesh")]  # of a DTensor
    flat = any(hasattr(parameter, "_sharded_size") for parameter in model.parameters())  # of FullyShardedDataParallel
    if flat or any(where.size() > 1 for where in (*groups, *meshes)):
        raise RequestError(
            f"{type(model).__name__} is wrapped for several processes, of which each would measure a batch of its own; call"
            " clear_start before the model is wrapped or sharded, with the same batch in every process."
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _check_batch(inputs: Any) -> None:
    """A batch without samples, or with one value everywhere, shows nothing."""
    for tensor in tree_leaves(inputs):
        if isinstance(tensor, Tensor) and not tensor.numel():
            raise RequestError(f"the inputs hold a tensor of shape {tuple(tensor.shape)}; pass a batch with a sample or more.")
    content = (
        {key: value for key, value in inputs.items() if not BESIDE.search(str(key))} if isinstance(inputs, Mapping) else inputs
    )
    tensors = [tensor for tensor in tree_leaves(content) if isinstance(tensor, Tensor) and tensor.numel() > 1]
    if tensors and all((tensor == tensor.flatten()[0]).all() for tensor in tensors):
        value = tensors[0].flatten()[0].item()
        raise RequestError(
            f"the inputs hold {value!r} at every place, which shows neither positions nor a spread; pass a batch of real samples."
        )


def _positions(
    model: nn.Module, inputs: Any, sites: Sequence[Site], asked: float, seed: int, kept: Kept, notes: list[str]
) -> list[PositionRow]:
    """Rescale positions; without any, the last note says why."""
    found, drawn = search(model, inputs, sites), frozenset[str]()
    if found.zero:
        found, drawn = draw(model, inputs, sites, found, seed, kept)
    if every := positions_of(model, found):
        after = clarify(model, inputs, sites, every, asked, kept)
        notes += _positions_notes(found, drawn, seed)
        rows = [(one, bool(drawn.intersection(one.names)), ratio) for one, ratio in zip(every, after, strict=True)]
        return [PositionRow(one.names, 0.0 if is_drawn else one.ratio(), ratio, is_drawn) for one, is_drawn, ratio in rows]
    if found.zero:
        raise RequestError(
            f"the positions {listing(sorted(found.zero[0]))} are all zero, which no factor changes; initialise them first, for"
            " instance with nn.init.trunc_normal_(…, std=0.02), or pass positions=None."
        )
    notes.append(why_none(model, found))
    return []


def _positions_notes(found: Search, drawn: frozenset[str], seed: int) -> list[str]:
    notes = []
    if drawn:
        notes.append(f"the positions {listing(sorted(drawn))} were zero; they are drawn from a normal distribution, seed {seed}.")
    padded = [addition.real for addition in found.learned if addition.real is not None]
    if padded:
        real, tokens = sum(int(mask.sum()) for mask in padded), sum(mask.numel() for mask in padded)
        notes.append(f"positions are measured without padding: over {real:,} of {tokens:,} tokens.")
    if found.fixed is not None:
        notes.append(f"the positions {fixed_names(found.fixed)} are fixed; they are as they were.")
    notes += [f"{listing(sorted(names))} is zero for every token; it is as it was." for names in found.zero]
    return notes + _later_notes(found)


def _later_notes(found: Search) -> list[str]:
    """What is added to the outcome of an attention: how large it is there depends on everything before it."""
    scaled = frozenset[str]().union(*(addition.sources for addition in found.learned))
    later = frozenset[str]().union(*(addition.sources for addition in found.later))
    notes = []
    if others := later - scaled:
        notes.append(f"the positions {listing(sorted(others))} are added after the first attention; they are as they were.")
    if again := later & scaled:
        notes.append(f"the positions {listing(sorted(again))} are added again after the first attention, with the same factor.")
    return notes


def _several(names: Sequence[str]) -> str:
    """The names, or the first of many."""
    return (
        listing(names)
        if len(names) <= MOST_NAMES
        else f"{', '.join(names[: MOST_NAMES - 1])} and {len(names) - MOST_NAMES + 1} more"
    )


def _why_lost(site: Site) -> str:
    where = by_hand(site.module)
    return f"was not called, or takes its softmax in a way that could not be followed{f' ({where})' if where else ''}"


def _logits_notes(left: Sequence[tuple[str, str]], idle: Sequence[str], operators: Set[str]) -> list[str]:
    """left   modules whose logits cannot be rescaled, and why;  idle   those that were not called"""
    reasons = {why: [name for name, other in left if other == why] for _, why in left}
    notes = [
        f"the logits of {_several(names)} are as they were: {'it' if len(names) == 1 else 'each'} {why}."
        for why, names in reasons.items()
    ]
    if idle:
        was, runs, each = ("was", "runs", "it") if len(idle) == 1 else ("were", "run", "each")
        notes.append(f"{_several(idle)} {was} not called on these inputs, or {runs} compiled; {each} is as it was.")
    if operators:
        names = listing(sorted(operators))
        notes.append(f"the model attends with {names}; the spread is that which plain softmax would see.")
    return notes


def _logits_row(index: int, name: str, heads: int, before: list[float], after: list[float]) -> LogitsRow:
    return LogitsRow(index, name, heads, tuple(before[:heads]), tuple(after[:heads]))


@contextmanager
def _batch_statistics(model: nn.Module) -> Iterator[None]:
    """Inside, batch norms do as in training: fresh running statistics say nothing of the data. `left_alone` puts them back."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and not isinstance(module, nn.SyncBatchNorm):
            module.train()
    yield


@contextmanager
def _undone_on_error(kept: Kept) -> Iterator[None]:
    try:
        yield
    except BaseException:
        kept.restore()
        raise
