"""The data on this machine: the user's own folder and the cache. Every file is checked before it is used."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eureka.data.dataset import Contents, DataSet, UnavailableError
from eureka.data.sources import Folder
from eureka.errors import RequestError, WorkError
from eureka.files import locked, write_whole

FOLDER_VARIABLE, CACHE_VARIABLE = "EUREKA_DATA", "EUREKA_CACHE"


def cache_folder() -> Path:
    """Where fetched data is kept: ``$EUREKA_CACHE``, or the user's cache folder."""
    if given := os.environ.get(CACHE_VARIABLE):
        return Path(given) / "data"
    from platformdirs import user_cache_path

    return user_cache_path("eureka", appauthor=False) / "data"


def user_folder() -> Path | None:
    """The folder of the user's own files: ``$EUREKA_DATA``."""
    given = os.environ.get(FOLDER_VARIABLE)
    return Path(given) if given else None


def places() -> list[Folder]:
    """The folders that are searched, in this order."""
    named = user_folder()
    return [Folder(path) for path in (named, cache_folder()) if path is not None]


def located(dataset: DataSet) -> Path | None:
    """The folder with all files of a data set, each of the right size unless gzipped; `read` checks their bytes."""
    for place in places():
        with contextlib.suppress(UnavailableError):
            paths = [place.find(dataset, file) for file in dataset.files]
            sizes = (p.suffix == ".gz" or p.stat().st_size == file.size for p, file in zip(paths, dataset.files, strict=True))
            if all(sizes):
                return paths[0].parent
    return None


def read(dataset: DataSet, files: tuple[str, ...] | None = None, where: Sequence[Folder] | None = None) -> Contents:
    """The checked contents of files on this machine; nothing is downloaded."""
    wanted = dataset if files is None else dataset.only(files)
    failures = []
    for place in places() if where is None else where:
        try:
            return wanted.check(place.bring(wanted, lambda what, done, total: None))
        except UnavailableError as error:
            failures.append(f"{place.name}: {error}")
    raise RequestError(
        f"the data set {dataset.name!r} is not here; `eureka data fetch {dataset.name}` brings it "
        f"({dataset.download_mb:g} MB). Looked in {'; '.join(failures)}."
    )


def keep(name: str, contents: Mapping[str, bytes]) -> Path:
    """Write files to the folder `name` of the cache, each whole or not at all."""
    folder = cache_folder() / name
    with _writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in contents.items():
            write_whole(folder / file, content)
    return folder


@contextlib.contextmanager
def fetch_lock(dataset: DataSet) -> Iterator[None]:
    """Wait until no other process fetches this data set."""
    folder = cache_folder()
    with contextlib.ExitStack() as stack:
        with _writing_to(folder):
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(folder / f".{dataset.name}.lock"))
        yield


@contextlib.contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    """Let the message of a failure say how to choose another cache."""
    try:
        yield
    except OSError as error:
        problem = f"cannot write to the cache {folder}: {error.strerror}"
    except WorkError as error:
        problem = str(error).rstrip(".")
    else:
        return
    raise WorkError(f"{problem}; set {CACHE_VARIABLE} to another folder.")
