"""The code of others that pages carry is what its authors published, and its licence goes with it."""

from __future__ import annotations

import hashlib
import itertools
from importlib import resources
from pathlib import Path
from typing import Any

from eureka.report.document import plotly_script
from eureka.report.write import write_report

VENDOR = resources.files("eureka.report") / "vendor"
LARGEST = 2_500_000
"""Bytes of a report of a study of usual size."""


def test_plotly_is_the_file_whose_checksum_is_written_down() -> None:
    digest = hashlib.sha256((VENDOR / "plotly-cartesian.min.js").read_bytes()).hexdigest()
    assert digest in (VENDOR / "README.md").read_text(encoding="utf-8")


def test_the_page_carries_plotly_with_its_licence(study: Path, tmp_path: Path) -> None:
    page = write_report([study], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "plotly.js (cartesian - minified) v4.1.1" in page
    assert "Licensed under the MIT license" in page
    assert "MIT License" in (VENDOR / "LICENSE.plotly").read_text(encoding="utf-8")
    assert plotly_script().count("</script") == 0


def test_a_report_of_sixty_runs_with_attention_is_a_file_that_can_be_sent_by_mail(
    tmp_path: Path, plant: Any, plant_attention: Any
) -> None:
    for fix, lr, seed in itertools.product(["softmax", "norm_softmax"], [1e-4, 3e-4, 1e-3], range(10)):
        changes = {"attention.name": fix, "training.lr": lr, "training.seed": seed}
        plant_attention(plant(tmp_path / "study", changes, leap=400, log_every=5), 400, tokens=17, every=10)
    assert write_report([tmp_path / "study"], tmp_path / "report.html").stat().st_size < LARGEST
