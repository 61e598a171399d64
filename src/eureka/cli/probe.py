"""`eureka probe`: what attention looks like inside a run."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.options import JsonOption, print_json
from eureka.errors import RequestError

if TYPE_CHECKING:
    from eureka.cli.probing import Readings
    from eureka.probes import LinearProbe, ProbeRecord
    from eureka.runs import RunFolder

COLUMNS = {
    "entropy": "entropy / log n",
    "participation": "Σp²",
    "spread": "spread of q·k",
    "near_uniform": "near uniform",
    "near_one_hot": "near one-hot",
    "grad_q": "|∂W_Q|",
    "grad_k": "|∂W_K|",
    "grad_v": "|∂W_V|",
    "grad_ratio": "q, k to v",
}


def probe(
    run: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run folder, or a file in its folder checkpoints.")],
    initial: Annotated[bool, typer.Option("--initial", help="Look at the model before its first step instead.")] = False,
    linear: Annotated[
        bool,
        typer.Option(
            "--linear", help="Also say which answers can be read off each layer, before and after; takes a minute or two."
        ),
    ] = False,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples to look at.")] = 256,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page with the pictures; report.html in RUN if not given."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show entropy, spread and gradients of every layer and head of a trained model, and put the pictures on the run's page.

    Of a run folder, what was measured is kept there; of a checkpoint or with --initial it is only shown.
    """
    from eureka.cli import probing

    folder, file = probing.located(run)
    whole = file is None and not initial
    page = output or folder.path / "report.html"
    if not page.parent.is_dir():
        raise RequestError(f"cannot write {page}: there is no folder {page.parent}.")
    at = probing.initial(folder) if initial else probing.trained(folder, file)
    record, stages = probing.measured(at, samples), dict[str, Any]()
    if linear and whole:
        stages["before"] = probing.read_off(probing.before_the_leap(folder))
    if linear:
        stages["after"] = probing.read_off(at)
    if not json:
        _print(record, stages, f"{folder.name} at step {at.step:,}")
    written = whole or output is not None
    if written:
        _keep(folder, record if whole else None, stages, page)
    if json:
        print_json(_document(folder, record, stages) | ({"report": str(page)} if written else {}))
    elif written:
        sys.stdout.write(f"The pictures are in {page}\n")


def _keep(folder: RunFolder, record: ProbeRecord | None, stages: dict[str, Readings], page: Path) -> None:
    """Write what was measured into the run folder, and the page from all that is there."""
    from eureka.report import write_report

    if record is not None:
        found: dict[str, Any] = {"linear": {when: stage.to_dict() for when, stage in stages.items()}} if stages else {}
        folder.write("probes.json", (folder.probes() or {}) | {"record": record.to_dict()} | found)
    write_report([folder.path], page)


def _document(folder: RunFolder, record: ProbeRecord, stages: dict[str, Readings]) -> dict[str, Any]:
    found = {when: stage.to_dict() for when, stage in stages.items()}
    document: dict[str, Any] = {"run": str(folder.path), **record.to_dict()}
    if "after" in found:
        document["linear"] = found["after"]["found"]
    if "before" in found:
        document["before"] = {"step": found["before"]["step"], "linear": found["before"]["found"]}
    return document


def _print(record: ProbeRecord, stages: dict[str, Readings], title: str) -> None:
    from eureka.cli.table import print_table

    shown = [name for name in COLUMNS if any(name in site.values for site in record.sites)]
    print_table(["layer", "head", *(COLUMNS[name] for name in shown)], _rows(record, shown), title)
    if stages:
        accuracies = [f"at step {stage.step:,}" for stage in stages.values()]
        columns = ["layer", "head", "answer", *accuracies, "chance", "bits", "of"]
        found = zip(*(stage.found for stage in stages.values()), strict=True)
        print_table(columns, map(_answer_row, found), "accuracy of logistic probes: z of each head, then the whole block")


def _rows(record: ProbeRecord, shown: Sequence[str]) -> Iterator[list[str]]:
    for site in record.sites:
        heads = max(len(values) for values in site.values.values())
        for head in range(heads):
            cells = [site.values.get(name, []) for name in shown]
            yield [site.name, str(head), *(_number(values[head * len(values) // heads]) if values else "–" for values in cells)]


def _answer_row(stages: Sequence[LinearProbe]) -> list[str]:
    """The same probe at each time; chance and bits of the last."""
    last = stages[-1]
    place = [last.site, "–" if last.head is None else str(last.head), last.answer]
    return [
        *place,
        *(f"{one.accuracy:.3f}" for one in stages),
        f"{last.chance:.3f}",
        f"{last.bits:.2f}",
        f"{last.uniform_bits:.2f}",
    ]


def _number(value: float) -> str:
    return "–" if value != value else f"{value:.3f}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"
