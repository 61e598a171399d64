"""The seven picture tasks of Hoffmann et al. 2024, each by its rule.

Where the paper's settings are not known, the choice is told: two kinds of candidates share the labels 0 to 9 (class 3 of the
digits and class 3 of the fashion items are both label 3), so that the plateau is at the same level in all seven.
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from eureka.tasks.pictures import (
    BLANK,
    BLUE,
    DIGIT,
    FASHION,
    PHOTO,
    RED,
    WHITE,
    PictureTask,
    Scene,
    pair,
    palette,
    plain,
    red_or_blue,
)

ONE_OR_TWO = ((DIGIT + 1,), (DIGIT + 2,))
LOW_OR_HIGH = ((DIGIT + 1, DIGIT + 2), (DIGIT + 3, DIGIT + 4))
CAR_OR_BIRD = ((PHOTO,), (PHOTO + 1,))

YELLOW, CYAN, GREEN, MAGENTA = (1.0, 1.0, 0.0), (0.0, 1.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 1.0)
ORANGE, VIOLET, SPRING = (1.0, 0.5, 0.0), (0.5, 0.0, 1.0), (0.0, 1.0, 0.5)
WARM_AND_COLD = (RED, YELLOW, BLUE, CYAN)
WARM_OR_COLD = ((0, 1), (2, 3))  # numbers of the colours above
TEN_COLOURS = (WHITE, RED, ORANGE, YELLOW, GREEN, SPRING, CYAN, BLUE, VIOLET, MAGENTA)


def _answers(same: Tensor, first: Tensor, second: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The label, and the intermediate answers that probes look for."""
    labels = torch.where(same, targets[:, 0], targets[:, 1])
    steps = {
        "selector": same.long(),
        "indicator_1": first,
        "indicator_2": second,
        "target_1": targets[:, 0],
        "target_2": targets[:, 1],
    }
    return labels, steps


class Main(PictureTask):
    """Indicators top-left and bottom-right show the same digit → the top-right fashion item's class, else the bottom-left's."""

    indicators: tuple[tuple[int, ...], ...] = ONE_OR_TWO

    def compose(self, n: int, generator: Generator) -> Scene:
        first, second, same = pair(n, self.indicators, self.p_top_right, generator)
        targets = torch.randint(10, (n, 2), generator=generator)
        shown = torch.stack([first, FASHION + targets[:, 0], FASHION + targets[:, 1], second], dim=1)
        colours = torch.stack([red_or_blue(n, generator), plain(n), plain(n), red_or_blue(n, generator)], dim=1)
        return Scene(shown, colours, *_answers(same, first, second, targets))


class DigitGroups(Main):
    """As main, but what is compared is whether the indicators are both of {1, 2}, or both of {3, 4}."""

    indicators = LOW_OR_HIGH


class NoFixedPosition(Main):
    """As main, but in each row indicator and target swap places at random; the candidates are the upper and the lower item."""

    def compose(self, n: int, generator: Generator) -> Scene:
        swapped = torch.randint(2, (n, 2), generator=generator)
        order = torch.stack([swapped[:, 0], 1 - swapped[:, 0], 2 + swapped[:, 1], 3 - swapped[:, 1]], dim=1)
        return super().compose(n, generator).moved(order)


class CifarIndicator(PictureTask):
    """Two photographs show both cars or both birds → the fashion item's class, else the digit's; all four shuffled."""

    needs_photos = True

    def compose(self, n: int, generator: Generator) -> Scene:
        first, second, same = pair(n, CAR_OR_BIRD, self.p_top_right, generator)
        targets = torch.randint(10, (n, 2), generator=generator)
        shown = torch.stack([first, second, FASHION + targets[:, 0], DIGIT + targets[:, 1]], dim=1)
        labels, steps = _answers(same, first - PHOTO, second - PHOTO, targets)
        order = torch.rand(n, 4, generator=generator).argsort(dim=1)
        return Scene(shown, plain(n)[:, None].expand(-1, 4, -1), labels, steps).moved(order)


class TopIfAbove(PictureTask):
    """A fashion item in each row, the rest blank: in the same column → the upper item's class, else the lower item's."""

    def compose(self, n: int, generator: Generator) -> Scene:
        upper, lower, same = pair(n, ((0,), (1,)), self.p_top_right, generator)  # the columns are what is compared
        targets = torch.randint(10, (n, 2), generator=generator)
        shown = torch.full((n, 4), BLANK)
        shown.scatter_(1, torch.stack([upper, 2 + lower], dim=1), FASHION + targets)
        return Scene(shown, plain(n)[:, None].expand(-1, 4, -1), *_answers(same, upper, lower, targets))


class ColourMatch(PictureTask):
    """Four digits: the indicators are both warm (red, yellow) or both cold (blue, cyan) → the top-right one, else bottom-left."""

    needs_colour = True

    def compose(self, n: int, generator: Generator) -> Scene:
        first, second, same = pair(n, WARM_OR_COLD, self.p_top_right, generator)
        shown = DIGIT + torch.randint(10, (n, 4), generator=generator)
        colours = [palette(WARM_AND_COLD, first), plain(n), plain(n), palette(WARM_AND_COLD, second)]
        return Scene(shown, torch.stack(colours, dim=1), *_answers(same, first, second, shown[:, 1:3] - DIGIT))


class FashionOrColour(PictureTask):
    """Same digit → the class of the one fashion item, top-right; different → which of ten colours it has."""

    needs_colour = True

    def compose(self, n: int, generator: Generator) -> Scene:
        first, second, same = pair(n, ONE_OR_TWO, self.p_top_right, generator)
        targets = torch.randint(10, (n, 2), generator=generator)  # of the item: its class and its colour
        shown = torch.stack([first, FASHION + targets[:, 0], torch.full((n,), BLANK), second], dim=1)
        item = palette(TEN_COLOURS, targets[:, 1])
        colours = torch.stack([red_or_blue(n, generator), item, plain(n), red_or_blue(n, generator)], dim=1)
        return Scene(shown, colours, *_answers(same, first, second, targets))
