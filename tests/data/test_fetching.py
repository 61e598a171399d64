"""From sources to the cache: order, checks, half downloads, two processes at once, and what is said when all fail."""

from __future__ import annotations

import errno
import hashlib
import multiprocessing
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from eureka.data.dataset import Contents, DataSet, File, UnavailableError
from eureka.data.fetching import Cache, default_sources, fetch
from eureka.data.sources import Folder, Tell
from eureka.data.store import cache_folder, keep, located, read
from eureka.errors import RequestError, WorkError

CONTENTS: Contents = {"pictures": bytes(range(256)) * 40, "labels": b"0123456789"}
DATASET = DataSet(
    name="toy",
    summary="",
    source="",
    download_mb=0.1,
    files=tuple(File(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in CONTENTS.items()),
)


@dataclass
class Scripted:
    """A source that does as it is told and counts how often it is asked."""

    name: str
    contents: Contents | UnavailableError = field(default_factory=lambda: dict(CONTENTS))
    seconds: float = 0.0
    log: Path | None = None

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        if self.log is not None:
            with self.log.open("a") as file:
                file.write("asked\n")
        time.sleep(self.seconds)
        if isinstance(self.contents, UnavailableError):
            raise self.contents
        return self.contents


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EUREKA_DATA", raising=False)
    monkeypatch.delenv("EUREKA_DATA_URL", raising=False)
    return tmp_path / "cache/data/toy"


@pytest.fixture(params=[0o022, 0o027])
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """What the user lets others do."""
    mask: int = request.param
    before = os.umask(mask)
    yield mask
    os.umask(before)


def test_the_first_source_that_has_it_fills_the_cache_and_is_named(cache: Path) -> None:
    broken = Scripted("the first", UnavailableError("it is raining"))
    fetched = fetch(DATASET, [broken, Scripted("the second"), Scripted("the third")])
    assert fetched.source == "the second"
    assert fetched.failures == ("the first: it is raining",)
    assert {path.name: path.read_bytes() for path in cache.iterdir()} == CONTENTS
    assert located(DATASET) == cache
    assert read(DATASET, ("labels",)) == {"labels": CONTENTS["labels"]}


def test_a_full_cache_is_used_without_any_other_source(tmp_path: Path) -> None:
    fetch(DATASET, [Scripted("somewhere")])
    log = tmp_path / "log"
    assert fetch(DATASET, [Cache(), Scripted("somewhere", log=log)]).source == "the cache"
    assert not log.exists()


def test_wrong_bytes_from_one_source_are_passed_over_for_the_next(cache: Path) -> None:
    liar = Scripted("the liar", {**CONTENTS, "labels": b"9999999999"})
    fetched = fetch(DATASET, [liar, Scripted("the honest")])
    assert fetched.source == "the honest"
    assert "labels has other bytes than recorded" in fetched.failures[0]
    assert (cache / "labels").read_bytes() == CONTENTS["labels"]


def test_nothing_is_kept_of_a_source_that_lied(cache: Path) -> None:
    with pytest.raises(WorkError):
        fetch(DATASET, [Scripted("the liar", {**CONTENTS, "labels": b"9999999999"})])
    assert not cache.exists() or not list(cache.iterdir())


def test_when_all_fail_one_message_tells_what_was_tried_and_why() -> None:
    sources = [Scripted("a", UnavailableError("no net")), Scripted("b", {}), Scripted("c", {**CONTENTS, "labels": b"0"})]
    with pytest.raises(WorkError) as caught:
        fetch(DATASET, sources)
    message = str(caught.value)
    for part in ("'toy'", "a: no net", "b: it lacks pictures, labels", "c: labels has 1 bytes instead of 10", "--from"):
        assert part in message


def test_a_damaged_cache_is_noticed_and_mended(cache: Path) -> None:
    fetch(DATASET, [Scripted("somewhere")])
    (cache / "pictures").write_bytes(CONTENTS["pictures"][:100])
    assert located(DATASET) is None
    with pytest.raises(RequestError, match="pictures has 100 bytes instead of 10,240"):
        read(DATASET)
    assert fetch(DATASET, [Cache(), Scripted("somewhere")]).source == "somewhere"
    assert read(DATASET) == CONTENTS


def test_a_file_altered_in_place_is_never_read(cache: Path) -> None:
    fetch(DATASET, [Scripted("somewhere")])
    (cache / "labels").write_bytes(b"0123456780")
    with pytest.raises(RequestError, match="eureka data fetch toy"):
        read(DATASET)


def test_the_user_s_folder_comes_before_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    for name, content in CONTENTS.items():
        (own / name).write_bytes(content)
    monkeypatch.setenv("EUREKA_DATA", str(own))
    assert located(DATASET) == own
    assert read(DATASET) == CONTENTS
    assert [source.name for source in default_sources()] == [f"the folder {own}", "the cache", "npm", "Debian", "HTTP"]
    assert isinstance(default_sources(tmp_path)[0], Folder)
    assert default_sources(tmp_path)[0].name == f"the folder {tmp_path}"


def _fetch_slowly(log: Path) -> None:
    fetch(DATASET, [Cache(), Scripted("somewhere", seconds=0.5, log=log)])


def test_two_processes_that_fetch_at_once_ask_only_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")  # a child has this module without importing it again
    processes = [context.Process(target=_fetch_slowly, args=(log,)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0]
    assert log.read_text() == "asked\n"
    assert read(DATASET) == CONTENTS


def test_a_fetch_that_is_killed_leaves_nothing_that_is_used(tmp_path: Path, cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_fetch_slowly, args=(tmp_path / "log",))
    process.start()
    while not (tmp_path / "log").exists():
        time.sleep(0.01)
    process.kill()
    process.join(30)
    assert located(DATASET) is None
    assert fetch(DATASET, [Cache(), Scripted("somewhere")]).source == "somewhere"  # and its lock is gone


def test_what_is_cached_can_be_read_by_others(cache: Path, umask: int) -> None:
    keep("encoded", {"words": b"of a shared cache"})
    fetch(DATASET, [Scripted("somewhere")])
    files = [*cache.iterdir(), cache.parent / "encoded/words"]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o666 & ~umask}


def test_a_cache_that_is_full_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkError, match="No space left on device; set EUREKA_CACHE to another folder"):
        fetch(DATASET, [Scripted("somewhere")])


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in the way").write_text("a file")
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path / "in the way"))
    with pytest.raises(WorkError, match="set EUREKA_CACHE to another folder"):
        fetch(DATASET, [Scripted("somewhere")])
    assert str(cache_folder()).endswith("in the way/data")
