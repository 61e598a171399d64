from __future__ import annotations

import pytest

from tests.racing.runs import RUNS, Run


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest) -> Run:
    if request.param == "GPT-2":
        pytest.importorskip("transformers")
    return RUNS[request.param]()
