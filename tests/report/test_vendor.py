"""The code of others that pages carry is what its authors published, and its licence goes with it."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

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


def test_a_report_is_a_file_that_can_be_sent_by_mail(study: Path, tmp_path: Path) -> None:
    assert write_report([study], tmp_path / "report.html").stat().st_size < LARGEST
