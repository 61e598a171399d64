"""The tables in the READMEs of results/ are what the committed runs say."""

from __future__ import annotations

import pytest

from benchmarks.committed import RESULTS, STUDIES, committed_runs
from benchmarks.tables import MARK, filled, printed, summarised
from eureka.errors import RequestError

READMES = sorted(RESULTS.rglob("README.md"))


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.relative_to(RESULTS).as_posix())
def test_every_block_that_names_a_study_is_what_is_printed_today(readme: object) -> None:
    text = readme.read_text(encoding="utf-8")  # type: ignore[attr-defined]
    assert text == filled(text), "python -m benchmarks.tables --write writes it"


def test_every_study_of_several_arms_has_its_table_in_a_readme() -> None:
    named = {found[2] for readme in READMES for found in MARK.finditer(readme.read_text(encoding="utf-8"))}
    assert {name for name in STUDIES if name.startswith(("every_rate/", "in_context/", "language/"))} <= named


def test_the_table_counts_the_committed_runs() -> None:
    softmax = [run for run in committed_runs("every_rate/digits") if run.config.fix == "softmax"]
    runs = [run for run in softmax if run.config.flat["model.start"] == "paper"]
    leaps = sum(run.eureka_step is not None for run in runs)
    assert f" {leaps} of {len(runs)} " in printed("every_rate/digits").partition("over all learning rates")[2]


def test_an_unknown_study_lists_the_nearest() -> None:
    with pytest.raises(RequestError, match="did you mean 'every_rate/tiles'"):
        printed("every_rate/tile")


@pytest.mark.parametrize("name", STUDIES)
def test_every_summary_is_what_the_command_makes_of_its_runs(name: str) -> None:
    text = (RESULTS / name / "summary.json").read_text(encoding="utf-8")
    assert summarised(name, text.replace(f"runs/{name}", "/home/somebody")) == text
