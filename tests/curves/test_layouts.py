"""Every layout of one known curve gives its moment in the layout's own unit, or one sentence: none is silently wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from eureka.curves.finding import Finding, examine
from eureka.curves.readers.curve import read_log
from eureka.curves.together import pairs
from eureka.errors import RequestError
from tests.curves.layouts import LAYOUTS, POINTS, Layout

READ = [layout for layout in LAYOUTS if layout.refused is None]
REFUSED = [layout for layout in LAYOUTS if layout.refused is not None]


def named(finding: Finding) -> str:
    curve = finding.curve
    return f"{curve.run}: {curve.metric}" if curve.run is not None else curve.metric


def tolerance(finding: Finding) -> float:
    """Three rows."""
    return 3.0 * float(np.ptp(finding.curve.steps)) / POINTS


def test_there_are_enough_layouts() -> None:
    assert len({layout.name for layout in LAYOUTS}) == len(LAYOUTS) >= 45


@pytest.mark.parametrize("layout", READ, ids=lambda layout: layout.name)
def test_the_moment_is_found_where_it_is_in_the_units_of_the_layout(layout: Layout, tmp_path: Path) -> None:
    findings = [examine(curve) for curve in read_log(layout.write(tmp_path))]
    found = {named(finding): finding for finding in findings if finding.eurekas}
    assert set(found) == set(layout.expected)
    for name, step in layout.expected.items():
        [moment] = found[name].eurekas
        assert moment.steepest == pytest.approx(step, abs=tolerance(found[name]))
        if layout.unit is not None:
            assert found[name].curve.step_name == layout.unit
    sentences = [pair.sentence() for pair in pairs(findings)]
    if layout.together is not None:
        assert any(layout.together in (sentence or "") for sentence in sentences)


@pytest.mark.parametrize("layout", REFUSED, ids=lambda layout: layout.name)
def test_what_cannot_be_read_is_refused_by_its_name(layout: Layout, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=layout.refused) as caught:
        read_log(layout.write(tmp_path))
    assert "\n" not in str(caught.value)
