"""Which sites are meant: by index, by a pattern of names, or by a predicate."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from eureka.errors import RequestError
from eureka.patching.sites import Site

Layers = int | str | Callable[[Site], bool] | Iterable["int | str | Callable[[Site], bool]"]


def choose(sites: Sequence[Site], layers: Layers | None) -> list[Site]:
    """The sites that `layers` names, in the order of the model; every part of it must name at least one."""
    if layers is None:
        return list(sites)
    parts = [layers] if isinstance(layers, (int, str)) or callable(layers) else list(layers)
    chosen: set[int] = set()
    for part in parts:
        found = _matching(sites, part)
        if not found:
            names = ", ".join(f"{site.index} {site.name}" for site in sites[:6])
            raise RequestError(f"layers: {part!r} matches none of the {len(sites)} sites ({names}{', …' * (len(sites) > 6)}).")
        chosen |= found
    if not chosen:
        raise RequestError("layers names nothing; leave it out to patch every site.")
    return [site for site in sites if site.index in chosen]


def _matching(sites: Sequence[Site], part: int | str | Callable[[Site], bool]) -> set[int]:
    if isinstance(part, bool) or not (isinstance(part, (int, str)) or callable(part)):
        raise RequestError(f"layers: an index, a pattern of names or a function of the site is expected, not {part!r}.")
    if isinstance(part, int):
        return {part % len(sites)} if -len(sites) <= part < len(sites) else set()
    if isinstance(part, str):
        return {site.index for site in sites if fnmatchcase(site.name, part) or fnmatchcase(f"{site.name}.{site.slot}", part)}
    return {site.index for site in sites if part(site)}
