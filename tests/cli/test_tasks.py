"""`eureka tasks` and `eureka tasks show` as their user sees them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torch import Generator
from typer.testing import CliRunner

from eureka.cli.tasks import app
from eureka.errors import RequestError, WorkError
from eureka.tasks.gallery import gallery
from eureka.tasks.registry import TASKS


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_without_a_subcommand_the_tasks_are_listed() -> None:
    assert [entry["name"] for entry in json.loads(run("--json"))["tasks"]] == TASKS.names()
    assert "window_sum" in run()


@pytest.mark.parametrize("name", ["digits", "tiles", "window_sum", "regression", "classification"])
def test_show_draws_examples_of_every_kind_of_input(name: str, tmp_path: Path) -> None:
    shown = json.loads(run("show", name, "-o", str(tmp_path / "grid.png"), "-n", "5", "--json"))
    with Image.open(tmp_path / "grid.png") as picture:
        assert picture.mode == "RGB"
        assert len(picture.getcolors(1 << 24) or []) > 2
    assert [level["loss"] for level in shown["levels"]] == [level.loss for level in TASKS.build(name).levels()]


def test_show_draws_the_pictures_themselves(tmp_path: Path) -> None:
    task = TASKS.build("digits")
    batch = task.sample(1, Generator().manual_seed(0))
    with Image.open(io.BytesIO(gallery(task, batch))) as sheet:
        first = sheet.crop((8, 22, 8 + 112, 22 + 112)).resize((16, 16), Image.Resampling.NEAREST).convert("L")
    shown = batch.inputs[0, 0]
    expected = ((shown - shown.min()) / (shown.max() - shown.min()) * 255).round()
    assert np.array_equal(np.asarray(first), expected.int().numpy())


def test_show_takes_settings_and_a_seed(tmp_path: Path) -> None:
    for number, arguments in enumerate((["--seed", "1"], ["--seed", "2"], ["--seed", "1", "--set", "decisions=3"])):
        run("show", "digits", "-o", str(tmp_path / f"{number}.png"), "-n", "2", *arguments)
    pictures = {path.read_bytes() for path in tmp_path.iterdir()}
    assert len(pictures) == 3


def test_a_wrong_task_setting_or_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="did you mean 'digits'"):
        run("show", "digit", "-o", str(tmp_path / "grid.png"))
    with pytest.raises(RequestError, match="decisions = 1"):
        run("show", "digits", "-o", str(tmp_path / "grid.png"), "--set", "decisions=1")
    with pytest.raises(WorkError, match=r"cannot write .*nowhere/grid\.png: No such file or directory\.$"):
        run("show", "digits", "-o", str(tmp_path / "nowhere/grid.png"))


def test_show_writes_no_file_unless_it_is_asked_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "-o FILE.png draws examples." in run("show", "tiles")
    assert json.loads(run("show", "tiles", "--json"))["picture"] is None
    assert list(tmp_path.iterdir()) == []
