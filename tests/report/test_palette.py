"""The colours are told apart by everyone: checked by simulating colour-blindness."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

from eureka.report.document import asset
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


# Ottosson 2020: linear RGB → cone responses → OKLab
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def style(ground: str, name: str) -> np.ndarray:
    """A colour of the page, as the style sheet has it."""
    light, dark = re.findall(rf"--{name}: (#\w{{6}});", asset("page.css"))
    return linear(light if ground == "light" else dark)


def heat(ground: str, share: float) -> np.ndarray:
    """The shade of a cell as a browser mixes it: `color-mix(in oklab, …)`."""
    ends = [OKLAB @ np.cbrt(CONES @ style(ground, name)) for name in ("soft", "heat")]
    mixed: np.ndarray = np.linalg.inv(CONES) @ (np.linalg.inv(OKLAB) @ ((1 - share) * ends[0] + share * ends[1])) ** 3
    return mixed


@pytest.mark.parametrize("ground", GROUND)
@pytest.mark.parametrize("vision", VISION)
def test_shades_of_the_heat_map_are_in_order_for_everyone(ground: str, vision: str) -> None:
    shades = [lab(np.asarray(VISION[vision]) @ heat(ground, k / 6)) for k in range(7)]
    lightness = [float(shade[0]) for shade in shades]
    assert lightness == sorted(lightness, reverse=ground == "light")
    assert min(float(np.linalg.norm(a - b)) for a, b in itertools.pairwise(shades)) > 4


@pytest.mark.parametrize("ground", GROUND)
def test_ink_is_readable_on_every_shade(ground: str) -> None:
    weights = np.array([0.2126, 0.7152, 0.0722])
    ink = float(weights @ style(ground, "ink"))
    for k in range(7):
        shade = float(weights @ heat(ground, k / 6))
        assert (max(ink, shade) + 0.05) / (min(ink, shade) + 0.05) >= 4.5
