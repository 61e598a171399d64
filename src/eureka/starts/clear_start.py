"""Clear start: positions as large as the content, logits with a spread, before the first step of training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from eureka.errors import RequestError
from eureka.formats import listing, measurement, span
from eureka.patching.attach import Found, Site, find_sites
from eureka.probes.capture import batch_statistics, left_alone
from eureka.probes.position_kinds import why_none
from eureka.probes.positions import search
from eureka.starts.calibrate import Kept
from eureka.starts.checks import check_request
from eureka.starts.clarify import clarify, positions_of
from eureka.starts.draw import draw
from eureka.starts.fresh import sign_of_training
from eureka.starts.logits import Logits
from eureka.starts.notes import logits_notes, positions_notes, spread_of, why_lost


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
        logits: None leaves W_Q and W_K alone; it is meant for plain softmax. Where one of the two must stay as it is (it makes
            values or a gate too, or is frozen), the other takes its part, with a note. An attention that cannot be brought to it
            (a norm behind W_Q and W_K, shared weights) is left alone with a note; if there is nothing else to rescale, it is an
            error
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
    check_request(model, inputs, positions, logits, seed)
    found = _find(model, trained)
    names = {site.index: site.name or type(site.module).__name__ for site in found.sites}
    kept, notes = Kept(), list[str]()
    with _undone_on_error(kept), left_alone(model), batch_statistics(model):
        measured = Logits(model, inputs, found.sites)
        before = measured.measure()
        lost = [site for site in found.sites if site.kind == "by_hand" and site.index not in before]
        if not before and found.sites and not lost:
            raise RequestError(
                f"no attention call of {type(model).__name__} was seen on these inputs: it was not reached, its code attends in a"
                " way that could not be followed, or the model runs compiled (pass it without torch.compile)."
            )
        rows = _positions(model, inputs, found.sites, positions, int(seed), kept, notes) if positions else []
        after = measured.sharpen(logits, kept) if logits is not None else {}
        left = [(names[index], why) for index, why in measured.sides.refused.items()] if logits is not None else []
        left += [*found.refused, *((names[site.index], why_lost(site)) for site in lost)]
        now = {names[index]: spreads for index, spreads in measured.spreads.items()}
        if not rows and not after:
            raise RequestError(_nothing_done(type(model).__name__, notes, left if logits is not None else [], now))
    if logits is not None:
        idle = [names[site.index] for site in found.sites if site.index not in before and site not in lost]
        sides = measured.sides
        unchecked = [names[index] for index in after if index in sides.unchecked]
        lone = [(names[index], letter, why) for index, (letter, why) in sides.lone().items() if index in after]
        handed = [names[index] for index in after if index in sides.handed_out and "k" in sides.letters(index)]
        notes += logits_notes(left, now, idle, unchecked, lone, handed, measured.operators)
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


def _positions(
    model: nn.Module, inputs: Any, sites: Sequence[Site], asked: float, seed: int, kept: Kept, notes: list[str]
) -> list[PositionRow]:
    """Rescale positions; without any, the last note says why."""
    found, drawn = search(model, inputs, sites), frozenset[str]()
    if found.zero:
        found, drawn = draw(model, inputs, sites, found, seed, kept)
    every = positions_of(model, found)
    if not every:
        notes.append(why_none(model, found))
        return []
    done = clarify(model, inputs, sites, every, asked, kept)
    scaled = frozenset[str]().union(*(every[index].names for index in done.ratios))
    notes += positions_notes(found, drawn & scaled, seed) if done.ratios else []
    notes += [f"the positions {listing(every[index].names)} are as they were: {why}." for index, why in done.reasons.items()]
    rows = []
    for index, after in done.ratios.items():
        names = every[index].names
        was_zero = not drawn.isdisjoint(names)
        rows.append(PositionRow(names, 0.0 if was_zero else done.before[index], after, was_zero))
    return rows


def _nothing_done(
    model: str, notes: Sequence[str], left: Sequence[tuple[str, str]], spreads: Mapping[str, Sequence[float]]
) -> str:
    """Why there are no positions, and why the first of the sites is left alone; of what was asked."""
    first = f"{' '.join(left[0])}{spread_of([left[0][0]], spreads)}." if left else ""
    if not notes:
        return f"W_Q and W_K of {model} cannot be rescaled: {first}"
    return f"{notes[-1].removesuffix('.')}; {first}" if left else notes[-1]


def _logits_row(index: int, name: str, heads: int, before: list[float], after: list[float]) -> LogitsRow:
    return LogitsRow(index, name, heads, tuple(before[:heads]), tuple(after[:heads]))


@contextmanager
def _undone_on_error(kept: Kept) -> Iterator[None]:
    try:
        yield
    except BaseException:
        kept.restore()
        raise
