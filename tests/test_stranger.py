"""A stranger's package called `eureka` beside ours is told of, and ours of old is not."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import pytest

from eureka.stranger import warn_of_stranger


def install(folder: Path, *, author: str) -> None:
    info = folder / "eureka-0.15.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: eureka\nVersion: 0.15\nSummary: A library of others\nAuthor: {author}\n"
    )


def test_a_strangers_package_is_told_of_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, author="Somebody")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.warns(UserWarning, match=r"another package that is called eureka \(0.15: A library of others\)") as told:
        warn_of_stranger()
    assert len(told) == 1
    assert "\n" not in str(told[0].message)


def test_our_own_package_under_its_old_name_is_no_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, author="The eureka maintainers")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_stranger()


def test_folders_that_are_not_there_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "gone"), ""])
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_stranger()
