"""Packages of Debian: ``apt-get download`` and ``dpkg-deb -x`` need no root and install nothing."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from eureka.data.dataset import Contents, DataSet, UnavailableError
from eureka.data.sources.client import run_client
from eureka.data.sources.source import Tell


@dataclass(frozen=True)
class Debian:
    """The package that the catalogue names."""

    name: str = "Debian"

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        if dataset.debian is None:
            raise UnavailableError("no package holds it")
        with tempfile.TemporaryDirectory() as folder:
            tell(f"apt-get download {dataset.debian.spec}", 0, None)
            run_client(["apt-get", "download", "--quiet", dataset.debian.spec], Path(folder))
            archives = list(Path(folder).glob("*.deb"))
            if len(archives) != 1:
                raise UnavailableError(f"apt-get download left {len(archives)} packages instead of one")
            return dataset.debian.assemble(members(archives[0], dataset.debian.pattern))


def members(archive: Path, pattern: str) -> Contents:
    """The files of a Debian package whose path fits."""
    with tempfile.TemporaryDirectory() as folder:
        run_client(["dpkg-deb", "-x", str(archive), folder], archive.parent)
        root = Path(folder)
        paths = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        found = {path.relative_to(root).as_posix(): path for path in paths}
        return {name: path.read_bytes() for name, path in found.items() if fnmatchcase(name, pattern)}
