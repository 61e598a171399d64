"""The files that are here: a folder that the user names, and the cache. Everything is checked before it is used."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from eureka.data.dataset import Contents, DataSet, UnavailableError
from eureka.data.sources.folder import Folder
from eureka.errors import RequestError, WorkError

FOLDER_VARIABLE, CACHE_VARIABLE, ADDRESS_VARIABLE = "EUREKA_DATA", "EUREKA_CACHE", "EUREKA_DATA_URL"


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
    """Where data may lie on this machine, in the order in which one looks."""
    named = user_folder()
    return [Folder(path) for path in (named, cache_folder()) if path is not None]


def located(dataset: DataSet) -> Path | None:
    """The folder with all files of a data set, each of the right size unless gzipped; their bytes are checked when read."""
    for place in places():
        with contextlib.suppress(UnavailableError):
            paths = [place.find(dataset, file) for file in dataset.files]
            sizes = (p.suffix == ".gz" or p.stat().st_size == file.size for p, file in zip(paths, dataset.files, strict=True))
            if all(sizes):
                return paths[0].parent
    return None


def read(dataset: DataSet, files: tuple[str, ...] | None = None, where: Sequence[Folder] | None = None) -> Contents:
    """The checked contents of files that are here; never from the net."""
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


def keep(dataset: DataSet, contents: Mapping[str, bytes]) -> Path:
    """Write checked contents to the cache; every file is there whole or not at all."""
    folder = cache_folder() / dataset.name
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_whole(folder / name, content)
    return folder


def write_whole(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)


@contextlib.contextmanager
def alone(dataset: DataSet) -> Iterator[None]:
    """Wait until no other process fetches this data set; the lock ends with the process, however that ends."""
    folder = cache_folder()
    with _told(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / f".{dataset.name}.lock").open("w")
    with lock:
        _lock(lock.fileno())
        yield


@contextlib.contextmanager
def _told(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WorkError(
            f"cannot write to the cache {folder}: {error.strerror}; set {CACHE_VARIABLE} to another folder."
        ) from None


def _lock(descriptor: int) -> None:
    try:
        import fcntl
    except ImportError:  # without flock two fetches do the work twice; whole files replace whole files, so no harm
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
