"""Clear start: positions as loud as the content, logits with a spread, before the first step of training."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from eureka.errors import RequestError
from eureka.formats import listing, measurement, span
from eureka.patching.attach import Found, find_sites
from eureka.probes.capture import left_alone
from eureka.probes.position_kinds import fixed_names, why_none
from eureka.probes.positions import Search, search, trainable
from eureka.starts.calibrate import Kept
from eureka.starts.clarify import clarify, learned
from eureka.starts.draw import draw
from eureka.starts.fresh import sign_of_training
from eureka.starts.logits import Logits


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
    distribution. Buffers, modes, random state and all other parameters stay.

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
    _check(model, inputs, positions, logits)
    if not trained and (sign := sign_of_training(model)) is not None:
        raise RequestError(
            f"{type(model).__name__} looks trained: {sign}, which is constant in a fresh model; pass trained=True to rescale it."
        )
    found = find_sites(model, written_out=False)
    if not found.sites and not found.refused:
        raise RequestError(f"no attention found in {type(model).__name__} ({found.searched} modules searched).")
    if not found.sites and positions is None:
        raise RequestError(f"W_Q and W_K of {type(model).__name__} cannot be rescaled: {_reason(found)}.")
    kept, notes = Kept(), list[str]()
    with _undone_on_error(kept), left_alone(model):
        measured = Logits(model, inputs, found.sites)
        before = measured.measure()
        if not before and found.sites:
            raise RequestError(
                f"no attention call of {type(model).__name__} was seen on these inputs: it was not reached, or the model runs"
                " compiled; pass the model without torch.compile."
            )
        rows = _positions(model, inputs, found, positions, seed, kept, notes, logits is None) if positions else []
        after = measured.sharpen(logits, kept) if logits is not None else {}
    if logits is not None:
        notes += _logits_notes(measured, found)
    names = {site.index: site.name or type(site.module).__name__ for site in found.sites}
    spreads = [_logits_row(index, names[index], measured.heads[index][0], before[index], after[index]) for index in after]
    return ClearStart(type(model).__name__, tuple(rows), tuple(spreads), tuple(notes), kept)


def _check(model: nn.Module, inputs: Any, positions: float | None, logits: float | None) -> None:
    if not isinstance(model, nn.Module):
        raise RequestError(f"a torch.nn.Module is rescaled, not {type(model).__name__}.")
    for name, parameter in model.named_parameters():
        if parameter.is_meta or is_lazy(parameter):
            raise RequestError(f"{name} of {type(model).__name__} has no values yet (meta or lazy); initialise the model first.")
    for tensor in tree_leaves(inputs):
        if isinstance(tensor, Tensor) and not tensor.numel():
            raise RequestError(f"the inputs hold a tensor of shape {tuple(tensor.shape)}; pass a batch with a sample or more.")
    if positions is None and logits is None:
        raise RequestError("positions=None and logits=None leave nothing to do; give at least one of them.")
    for name, value in (("positions", positions), ("logits", logits)):
        if value is not None and not (math.isfinite(value) and value > 0):
            raise RequestError(f"{name} is a positive number or None, not {value!r}.")


def _positions(
    model: nn.Module, inputs: Any, places: Found, asked: float, seed: int, kept: Kept, notes: list[str], alone: bool
) -> list[PositionRow]:
    sites = places.sites
    found, drawn = search(model, inputs, sites), frozenset[str]()
    before = {addition.sources: addition.ratio for addition in found.learned}
    if found.zero:
        found, drawn = draw(model, inputs, sites, found, seed, kept)
    if found.learned:
        names = [learned(addition, trainable(model)) for addition in found.learned]
        after = clarify(model, inputs, sites, found, asked, kept)
        notes += _positions_notes(found, drawn, seed)
        ratios = [before.get(addition.sources, 0.0) for addition in found.learned]
        return [PositionRow(*row, bool(drawn.intersection(row[0]))) for row in zip(names, ratios, after, strict=True)]
    if found.zero:
        raise RequestError(
            f"the positions {listing(sorted(found.zero[0]))} are all zero, which no factor changes; initialise them first, for"
            " instance with nn.init.trunc_normal_(…, std=0.02), or pass positions=None."
        )
    why = why_none(model, found)
    if alone:
        raise RequestError(why)
    if not sites:
        raise RequestError(f"{why.removesuffix('.')}; {_reason(places)}.")
    notes.append(why)
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
    return notes + [f"{listing(sorted(names))} is zero for every token; it is as it was." for names in found.zero]


def _reason(found: Found) -> str:
    """Why there is no site: the first module that attends in a way of its own."""
    name, why = found.refused[0]
    return f"{name} {why}"


def _logits_notes(measured: Logits, found: Found) -> list[str]:
    idle = [site.name for site in found.sites if site.index not in measured.heads]
    reasons = {why: [name for name, other in found.refused if other == why] for _, why in found.refused}
    notes = [
        f"the logits of {listing(names)} are as they were: {'it' if len(names) == 1 else 'each'} {why}."
        for why, names in reasons.items()
    ]
    notes += [f"{name} was not called on these inputs, or runs compiled; it is as it was." for name in idle]
    if measured.operators:
        names = listing(sorted(measured.operators))
        notes.append(f"the model attends with {names}; the spread is that which plain softmax would see.")
    return notes


def _logits_row(index: int, name: str, heads: int, before: list[float], after: list[float]) -> LogitsRow:
    return LogitsRow(index, name, heads, tuple(before[:heads]), tuple(after[:heads]))


@contextmanager
def _undone_on_error(kept: Kept) -> Iterator[None]:
    try:
        yield
    except BaseException:
        kept.restore()
        raise
