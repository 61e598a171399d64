"""What `clear_start` says of what it did, and of what it left alone, a sentence each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set

from eureka.formats import listing, span
from eureka.patching.attach import Site, by_hand
from eureka.probes.position_kinds import fixed_names
from eureka.probes.positions import Search

MOST_NAMES = 5
"""How many sites a note lists by name."""


def positions_notes(found: Search, drawn: frozenset[str], seed: int) -> list[str]:
    """What was drawn, what was measured, and which positions are as they were."""
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


def why_lost(site: Site) -> str:
    """Why no attention call of a site was seen."""
    where = by_hand(site.module)
    return f"was not called, or takes its softmax in a way that could not be followed{f' ({where})' if where else ''}"


def logits_notes(
    left: Sequence[tuple[str, str]],
    spreads: Mapping[str, Sequence[float]],
    idle: Sequence[str],
    unchecked: Sequence[str],
    lone: Sequence[tuple[str, str, str]],
    handed_out: Sequence[str],
    operators: Set[str],
) -> list[str]:
    """Which logits are as they were, and what is not known of the others.

    Args:
        left: sites whose W_Q and W_K cannot be rescaled, and why
        spreads: the spread of each head of the sites that were called, as it is now
        idle: sites that were not called
        unchecked: sites that were rescaled without knowing what else W_Q and W_K make
        lone: sites of which one weight takes the whole factor: the name, "q" or "k" for the weight, and why not the other
        handed_out: sites whose keys were rescaled and are among what the model gives
        operators: what the model attends with, other than plain softmax
    """
    reasons = {why: [name for name, other in left if other == why] for _, why in left}
    notes = list[str]()
    for why, names in reasons.items():
        it, spread = "it" if len(names) == 1 else "each", spread_of(names, spreads)
        notes.append(f"the logits of {_several(names)} are as they were: {it} {why}{spread}.")
    if idle:
        was, runs, each = ("was", "runs", "it") if len(idle) == 1 else ("were", "run", "each")
        notes.append(f"{_several(idle)} {was} not called on these inputs, or {runs} compiled; {each} is as it was.")
    if unchecked:
        runs = "it does not run by itself" if len(unchecked) == 1 else "they do not run by themselves"
        notes.append(
            f"whether W_Q and W_K of {_several(unchecked)} make anything but q and k could not be checked: {runs}, or not"
            " alike twice."
        )
    for letter, why in dict.fromkeys((letter, why) for _, letter, why in lone):
        names = [name for name, *rest in lone if rest == [letter, why]]
        it = "it" if len(names) == 1 else "each"
        notes.append(f"W_{letter.upper()} of {_several(names)} takes the whole factor, because {it} {why}.")
    if handed_out:
        notes.append(f"the keys of {_several(handed_out)} are among what the model gives, as for a cache; they grow with W_K.")
    if operators:
        notes.append(f"the model attends with {listing(sorted(operators))}; the spread is that which plain softmax would see.")
    return notes


def spread_of(names: Sequence[str], spreads: Mapping[str, Sequence[float]]) -> str:
    """The spread of the logits of some sites as the end of a sentence; empty if none was called."""
    known = [spread for name in names for spread in spreads.get(name, ()) if math.isfinite(spread)]
    return f"; the spread is {span(known)}" if known else ""


def _several(names: Sequence[str]) -> str:
    """The names, or the first of many."""
    return (
        listing(names)
        if len(names) <= MOST_NAMES
        else f"{', '.join(names[: MOST_NAMES - 1])} and {len(names) - MOST_NAMES + 1} more"
    )
