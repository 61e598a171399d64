"""What a public host reads beside the code: CI, the citation, the forms for issues."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import eureka

ROOT = Path(__file__).parents[1]
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def read(path: str) -> Any:
    return yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))


def test_public_ci_runs_the_one_script_on_every_python_that_we_name() -> None:
    job = read(".github/workflows/ci.yml")["jobs"]["test"]
    named = [text.rpartition(" ")[2] for text in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", text)]
    assert job["strategy"]["matrix"]["python"] == named == ["3.11", "3.12", "3.13"]
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]


def test_the_citation_credits_the_paper_and_has_our_version() -> None:
    found = read("CITATION.cff")
    (paper,) = found["references"]
    assert found["version"] == eureka.__version__
    assert found["license"] == PROJECT["license"]
    assert [author["family-names"] for author in paper["authors"]] == [
        *("Hoffmann", "Schrodi", "Bratulić", "Behrmann", "Fischer", "Brox")
    ]
    assert paper["url"] == PROJECT["urls"]["Paper"] == "https://arxiv.org/abs/2310.12956"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_every_form_asks_for_the_loss_log_and_the_version(form: Path) -> None:
    found = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(found)
    fields = {field["id"]: field for field in found["body"]}
    assert "loss log" in fields["log"]["attributes"]["label"]
    assert "eureka --version" in fields["version"]["attributes"]["description"]
    assert {field["type"] for field in found["body"]} <= {"textarea", "input", "dropdown", "checkboxes", "markdown"}


def test_no_text_tells_anyone_to_install_the_strangers_package() -> None:
    texts = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    texts += (ROOT / "src").rglob("*.py")
    for path in texts:
        for line in re.findall(r"pip install[^`\n]*", path.read_text(encoding="utf-8")):
            assert not re.search(r"\beureka(?!-moments)\b(?!/)", line), f"{path.name}: {line}"
