"""`eureka data` as its user sees it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from eureka.cli.data import app
from eureka.data.catalogue import CATALOGUE
from eureka.data.dataset import DataSet, File
from eureka.errors import RequestError, WorkError

CONTENT = b"ten classes of nothing"
TOY = DataSet(
    name="toy",
    summary="a toy",
    source="nobody",
    download_mb=0.1,
    files=(File("things", len(CONTENT), hashlib.sha256(CONTENT).hexdigest()),),
)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("EUREKA_DATA", raising=False)
    monkeypatch.delenv("EUREKA_DATA_URL", raising=False)
    monkeypatch.setitem(CATALOGUE, "toy", TOY)


@pytest.fixture
def own_folder(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/things").write_bytes(CONTENT)
    return tmp_path / "own"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_list_names_every_data_set_and_where_it_is(own_folder: Path) -> None:
    listed = {entry["name"]: entry for entry in json.loads(run("list", "--json"))["data"]}
    assert set(listed) == set(CATALOGUE)
    assert listed["toy"]["path"] is None
    run("fetch", "toy", "--from", str(own_folder))
    listed = {entry["name"]: entry for entry in json.loads(run("list", "--json"))["data"]}
    assert Path(listed["toy"]["path"]).name == "toy"
    assert "fashion_mnist" in run("list")


def test_fetch_from_a_folder_fills_the_cache_and_then_works_without_it(own_folder: Path, tmp_path: Path) -> None:
    fetched = json.loads(run("fetch", "toy", "--from", str(own_folder), "--json"))["data"][0]
    assert fetched["source"] == f"the folder {own_folder}"
    (own_folder / "things").unlink()
    assert "from the cache" in run("fetch", "toy")
    assert run("path", "toy").strip() == str(tmp_path / "cache/data/toy") == fetched["path"]


def test_a_named_folder_that_does_not_do_is_mentioned_when_another_source_does(own_folder: Path, tmp_path: Path) -> None:
    run("fetch", "toy", "--from", str(own_folder))
    result = CliRunner().invoke(app, ["fetch", "toy", "--from", str(tmp_path / "nowhere")], catch_exceptions=False)
    assert "passed over the folder" in result.stderr
    assert "from the cache" in result.stdout


def test_fetch_that_fails_tells_what_was_tried() -> None:
    with pytest.raises(WorkError, match=r"could not be fetched; tried the cache: .*; npm: .*; Debian: .*; HTTP: no address"):
        run("fetch", "toy")


def test_a_data_set_that_fails_does_not_stop_the_next(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CATALOGUE, "absent", replace(TOY, name="absent", files=(File("nothing", 1, "0" * 64),)))
    result = CliRunner().invoke(app, ["fetch", "absent", "toy", "--from", str(own_folder)])
    assert "toy: " in result.stdout
    assert isinstance(result.exception, WorkError)
    assert "'absent' could not be fetched" in str(result.exception)
    assert "'toy'" not in str(result.exception)


def test_a_wrong_name_is_told_before_anything_is_fetched(own_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="did you mean 'mnist'"):
        run("fetch", "toy", "mnits", "--from", str(own_folder))
    assert not (tmp_path / "cache").exists()


def test_path_of_data_that_is_not_here_says_how_to_get_it() -> None:
    with pytest.raises(RequestError, match="`eureka data fetch toy` brings it"):
        run("path", "toy")
