"""What ``pip install eureka-moments`` brings: the wheel in an empty environment, and its size. ``python -m benchmarks.light``"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import start
from eureka.errors import WorkError

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Environment:
    """A virtual environment without pip; ours installs into it."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        """An empty one."""
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        return cls(folder)

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def packages(self) -> Path:
        """Where the packages are."""
        return next((self.folder / "lib").glob("python3*")) / "site-packages"

    def install(self, *wanted: str) -> None:
        """``pip install`` into it."""
        quiet = ["--quiet", "--no-warn-script-location", "--disable-pip-version-check", "--retries=1"]
        _run([sys.executable, "-m", "pip", f"--python={self.python}", "install", *quiet, *wanted])

    def megabytes(self) -> float:
        """What the packages take on the disk, without byte code."""
        files = (path for path in self.packages.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
        return sum(path.stat().st_size for path in files) / 1e6

    def names(self) -> list[str]:
        """The packages, with their versions."""
        return sorted(info.name.removesuffix(".dist-info") for info in self.packages.glob("*.dist-info"))


def build_wheel(folder: Path) -> Path:
    """The wheel of this repository, as ``make dist`` builds it."""
    _run([sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(ROOT)])
    return next(folder.glob("*.whl"))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise WorkError(f"{' '.join(command[1:4])} failed: {(done.stderr or done.stdout).strip()}")


def light() -> None:
    """Build the wheel, install it with what it needs into an empty environment, and print what came and how large it is."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = Environment.make(folder / "light")
        environment.install(str(build_wheel(folder)))
        sys.stdout.write("\n".join(environment.names()) + f"\n{environment.megabytes():.0f} MB\n")


if __name__ == "__main__":
    start(light)
