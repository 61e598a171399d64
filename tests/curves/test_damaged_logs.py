"""Damaged logs are read or refused in one sentence; ``make fuzz`` reads 10,000 of them."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from eureka.curves.readers import file_types
from eureka.curves.readers.file_types import read_file
from eureka.errors import RequestError
from tests.curves.fuzzing import MEGABYTES, damaged, memory, outcome


def test_damaged_logs_give_no_traceback_and_take_little_memory(tmp_path: Path) -> None:
    before = memory()
    results = {what: outcome(path, json=bool(i % 2)) for i, (what, path) in enumerate(damaged(120, seed=7, folder=tmp_path))}
    assert {what: result for what, result in results.items() if result not in ("read", "refused")} == {}
    assert {"read", "refused"} == set(results.values())
    assert memory() - before < MEGABYTES


def test_the_check_of_damaged_logs_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr("eureka.curves.readers.folders.read_file", broken)
    assert "IndexError" in outcome(tmp_path / "log.csv", json=True)


def zipped(content: bytes, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("loss.csv", content)


@pytest.mark.parametrize(
    "pack",
    [
        lambda content, path: path.write_bytes(gzip.compress(content)),
        lambda content, path: path.write_bytes(bz2.compress(content)),
        lambda content, path: path.write_bytes(lzma.compress(content)),
        zipped,
    ],
    ids=["gzip", "bzip2", "xz", "zip"],
)
def test_a_packed_log_is_read_up_to_a_size_and_refused_beyond_it(
    pack: Callable[[bytes, Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "loss.csv.packed"
    pack(b"step,loss\n" + b"".join(b"%d,0.5\n" % step for step in range(40_000)), path)
    assert read_file(path).rows == 40_000
    monkeypatch.setattr(file_types, "UNPACKED", 1 << 18)
    with pytest.raises(RequestError, match="unpacks to more than 262,144 bytes"):
        read_file(path)


def test_a_table_of_very_many_columns_is_refused_before_its_fields_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(",".join(["1"] * 200_000) for _ in range(3)))
    monkeypatch.setattr(file_types, "is_table", lambda *_: pytest.fail("each field was looked at"))
    with pytest.raises(RequestError, match="a line of 200,000 fields; a log has at most 20,000"):
        read_file(path)
