from __future__ import annotations

import pytest

from tests.starts.twins import CASES, Case


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]
