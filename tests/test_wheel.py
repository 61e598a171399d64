"""The wheel works in an empty environment, without this repository beside it: light, and with torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import eureka
from benchmarks.light import ROOT, Environment, build_wheel
from eureka.errors import WorkError

pytest.importorskip("build", reason="needs the package build: pip install 'eureka-moments[dev]'")
pytest.importorskip("hatchling", reason="needs the package hatchling: pip install 'eureka-moments[dev]'")
pytest.importorskip("hatch_fancy_pypi_readme", reason="needs hatch-fancy-pypi-readme: pip install 'eureka-moments[dev]'")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The wheel and what it needs, from the package index."""
    made = Environment.make(tmp_path_factory.mktemp("light"))
    try:
        made.install("--no-compile", str(wheel))
    except WorkError:
        try:
            made.install("--dry-run", "--no-deps", "rich")
        except WorkError as error:
            pytest.skip(f"needs a package index: {error}")
        raise
    return made


def call(folder: Path, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """A command in a folder that has nothing of ours, and that is not told of this repository."""
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=120)


def test_the_wheel_alone_is_small_finds_a_moment_and_says_what_needs_torch(light: Environment, tmp_path: Path) -> None:
    names = {name.split("-")[0] for name in light.names()}
    assert "eureka_moments" in names
    assert not names & {"torch", "scipy", "scikit_learn", "transformers"}
    assert light.megabytes() < 200

    program = light.folder / "bin" / "eureka"
    assert call(tmp_path, program, "--version").stdout == f"eureka {eureka.__version__}\n"
    (tmp_path / "loss.csv").write_text("step,loss\n" + "\n".join(f"{i},{2.0 if i < 400 else 0.5}" for i in range(600)) + "\n")
    done = call(tmp_path, program, "detect", "loss.csv", "--json", "--html", "page.html")
    assert done.returncode == 0, done.stderr
    assert [moment["kind"] for moment in json.loads(done.stdout)["files"][0]["moments"]] == ["eureka"]
    assert (tmp_path / "page.html").stat().st_size > 10_000

    refused = call(tmp_path, program, "compare", "tiles")
    assert refused.returncode == 2
    assert refused.stderr == "eureka: this needs the package 'torch': pip install 'eureka-moments[torch]'\n"


def test_a_tiny_comparison_runs_from_the_wheel_where_torch_is(wheel: Path, tmp_path: Path) -> None:
    environment = Environment.make(tmp_path / "full")
    environment.install("--no-compile", "--no-deps", "--no-index", str(wheel))
    found = {sysconfig.get_path("purelib"), *(path for path in sys.path if path.endswith("site-packages"))}
    (environment.packages / "borrowed.pth").write_text("\n".join(sorted(found)) + "\n")  # torch, and what goes with it
    small = ["steps=12", "warmup=2", "batch_size=8", "validation_samples=32"]
    changes = [word for change in small for word in ("--set", f"training.{change}")]
    words = ["compare", "tiles", "--fix", "norm_softmax", "--seeds", "1", "--set", "model.dim=16", *changes]
    done = call(tmp_path, environment.folder / "bin" / "eureka", *words, "--out", "study", "--json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "study" / "report.html").exists()
    where = call(tmp_path, environment.python, "-c", "import eureka; print(eureka.__file__)")
    assert where.stdout.startswith(str(environment.folder))


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_metadata_names_the_distribution_and_its_extras(wheel: Path) -> None:
    found = metadata(wheel)
    assert found["Name"] == "eureka-moments"
    assert found["Version"] == eureka.__version__
    assert {"all", "dev", "docs", "hf", "lightning", "plot", "ray", "report", "tensorboard", "text", "torch", "watch"} == set(
        found.get_all("Provides-Extra") or ()
    )
    assert "https://arxiv.org/abs/2310.12956" in " ".join(found.get_all("Project-URL") or ())


def test_the_description_links_to_no_file_that_the_package_index_does_not_have(wheel: Path) -> None:
    description = metadata(wheel).get_payload()
    assert isinstance(description, str)
    assert description.startswith("# eureka\n")
    assert re.findall(r"\]\((?!https://)[^)]*\)", description) == []
    assert "My loss is flat walks through these in ten minutes" in description
    assert "[Eureka-Moments in Transformers](https://arxiv.org/abs/2310.12956)" in description


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"eureka", f"eureka_moments-{eureka.__version__}.dist-info"}


def test_the_source_archive_can_be_tested_and_built(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "CITATION.cff", "README.md", "LICENSE", "Makefile", "constraints.txt"} <= held
    assert {"src/eureka/curves/known_waits.csv", "tests/test_wheel.py", "docs/regimes.md"} <= held
