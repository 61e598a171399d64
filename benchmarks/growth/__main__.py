"""``python -m benchmarks.growth``: see the package."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.command import start
from benchmarks.growth import measures
from benchmarks.growth.floors import floors
from benchmarks.growth.page import Growth, page
from benchmarks.growth.series import Series
from benchmarks.growth.sides import both_sides
from benchmarks.tasks import SamplingSpeed, sampling_speed
from benchmarks.training import LoopCost, loop_cost, matmul_rate
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, print_json
from eureka.errors import RequestError
from eureka.files import check_folder, write_whole
from eureka.recipes import recipe

STEPS = ("tiles", "small/main")
"""The recipes whose step is taken apart."""
LENGTHS = (17, 197, 1024, 4096, 16384)


def measure(quick: bool) -> Growth:
    """Measure all; quick takes sizes that say little and show that everything works."""
    torch.set_num_threads(1)
    sides = both_sides(quick, say)
    say("attention")
    lengths = LENGTHS[:2] if quick else LENGTHS
    series = [measures.attention_over_tokens(op, lengths) for op in ("sdpa", "norm_softmax")]
    say("steps")
    for key, sizes in {"model.dim": (32, 64, 128, 256), "model.depth": (1, 2, 4, 8)}.items():
        chosen = sizes[:2] if quick else sizes
        series += [measures.step_over(key, chosen), measures.step_operations(key, chosen)]
    say("studies")
    series += measures.study_over_runs((8, 16) if quick else (100, 1_000, 10_000))
    say("reports")
    series.append(measures.report_over((8, 16) if quick else (40, 200, 1_000), "runs"))
    series.append(measures.report_over((20, 40) if quick else (60, 600, 6_000), "lines"))
    say("detection")
    series.append(measures.detection_over_points((200, 400) if quick else (1_000, 10_000, 100_000, 1_000_000)))
    say("training and pictures")
    return Growth(sides, floors(), _training(quick), _pictures(), series)


def _training(quick: bool) -> list[LoopCost]:
    rate, found = matmul_rate(), []
    for name in STEPS[:1] if quick else STEPS:
        with contextlib.suppress(RequestError):  # data that is not on this machine
            found.append(loop_cost(name, recipe(name), rate, rounds=2 if quick else 6))
    return found


def _pictures() -> list[SamplingSpeed]:
    with contextlib.suppress(RequestError):
        return [sampling_speed(recipe("small/main"))]
    return []


def main(
    json: JsonOption = False,
    page_file: Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Write the page there.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes, to see that it works.")] = False,
) -> None:
    """How time and memory grow with tokens, width, depth, runs, lines and points; what was made faster, before and after."""
    if page_file is not None:
        check_folder(page_file)
    found = measure(quick)
    text = page(found)
    if page_file is not None:
        write_whole(page_file, text.encode())
    if json:
        print_json(
            {
                "sides": [asdict(one) for one in found.sides],
                "training": [asdict(one) for one in found.training],
                "series": [_document(one) for one in found.series],
            }
        )
    elif page_file is None:
        sys.stdout.write(text)


def _document(one: Series) -> dict[str, object]:
    return asdict(one) | {"time_exponent": one.time_exponent, "memory_exponent": one.memory_exponent}


if __name__ == "__main__":
    start(main)
