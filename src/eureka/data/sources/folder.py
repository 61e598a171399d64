"""A folder with files that somebody already has."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eureka.data.dataset import Contents, DataSet, File, UnavailableError, unpacked
from eureka.data.sources.source import Tell


@dataclass(frozen=True)
class Folder:
    """Files lie in it directly, in ``<data set>/``, or where torchvision puts them; each as it is or gzipped."""

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
