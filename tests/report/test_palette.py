"""The colours are told apart by everyone: checked by simulating colour-blindness."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from eureka.report.palette import BASELINE, MARKS, marks

# Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB
VISION = {
    "usual": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
GROUND = {"light": "#ffffff", "dark": "#12161c"}


def linear(colour: str) -> np.ndarray:
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = matrix @ np.clip(rgb, 0, 1) / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def luminance(colour: str) -> float:
    return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(colour))


@pytest.mark.parametrize("ground", GROUND)
@pytest.mark.parametrize("vision", VISION)
def test_the_five_fixes_of_a_usual_study_are_told_apart(ground: str, vision: str) -> None:
    colours = [getattr(mark, ground) for mark in (BASELINE, *MARKS[:4])]
    seen = [lab(np.asarray(VISION[vision]) @ linear(colour)) for colour in colours]
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)) > 15


@pytest.mark.parametrize("ground", GROUND)
def test_every_colour_stands_out_from_its_ground(ground: str) -> None:
    for mark in (BASELINE, *MARKS):
        bright, dim = sorted([luminance(getattr(mark, ground)), luminance(GROUND[ground])], reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 2.5


def test_plain_softmax_is_grey_and_the_others_have_a_symbol_each() -> None:
    chosen = marks(["softmax", "softmax", "temperature", "norm_softmax"])
    assert chosen == [BASELINE, *MARKS[:3]]
    assert len({mark.symbol for mark in (BASELINE, *MARKS)}) == 1 + len(MARKS)


def test_more_fixes_than_colours_begin_again() -> None:
    assert marks([f"fix{i}" for i in range(len(MARKS) + 1)])[-1] == MARKS[0]
