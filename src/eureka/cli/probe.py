"""`eureka probe`: what attention looks like inside a run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eureka.cli.options import JsonOption, print_json
from eureka.errors import RequestError
from eureka.formats import NONE, measurement

if TYPE_CHECKING:
    from eureka.runs import LinearProbe, ProbeRecord, Readings, RunFolder
    from eureka.snapshots import Snapshot

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
INDUCTION = {
    "prefix_matching": "prefix matching",
    "prefix_chance": "if even",
    "previous_token": "previous token",
    "copying": "copying",
}


def probe(
    run: Annotated[Path, typer.Argument(metavar="RUN|CHECKPOINT", help="A run folder, or a file in its folder checkpoints.")],
    initial: Annotated[bool, typer.Option("--initial", help="Look at the model before its first step instead.")] = False,
    linear: Annotated[
        bool,
        typer.Option(
            "--linear", help="Also say which answers can be read off each layer, before and after; says how long it takes."
        ),
    ] = False,
    repeated: Annotated[
        bool,
        typer.Option("--repeated", help="Score induction heads on random tokens, said twice, and not on the task's own samples."),
    ] = False,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Samples to look at.")] = 256,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page with the pictures; report.html in RUN if not given."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show entropy, spread and gradients of every layer and head of a trained model, how much of its first attention is position,
    and put the pictures on the run's page.

    Where the task repeats tokens, or with --repeated, also induction-head scores: how much each head looks at what followed the
    same token before (prefix matching), how much at the token before, and whether it copies.

    The measurements of a run folder are kept there; those of a checkpoint, or with --initial, are only shown.
    """
    from eureka import snapshots

    folder, file = snapshots.find_run(run)
    whole = file is None and not initial
    page = output or folder.path / "report.html"
    if not page.parent.is_dir():
        raise RequestError(f"cannot write {page}: there is no folder {page.parent}.")
    snapshot = snapshots.initial_snapshot(folder) if initial else snapshots.trained_snapshot(folder, file)
    record = snapshots.probe_attention(snapshot, samples)
    if repeated:
        record = snapshots.with_repeated_tokens(record, snapshot, samples)
    stages = _linear(folder if whole else None, snapshot) if linear else {}
    if not json:
        _print(record, stages, f"{folder.name} at step {snapshot.step:,}")
    written = whole or output is not None
    if written:
        _keep(folder, record if whole else None, stages, page)
    if json:
        print_json(_document(folder, record, stages) | ({"report": str(page)} if written else {}))
    elif written:
        sys.stdout.write(f"The pictures are in {page}\n")


def _linear(folder: RunFolder | None, snapshot: Snapshot) -> dict[str, Readings]:
    """What can be read off the model, and, where a run folder is given, off the model before its leap."""
    from eureka import snapshots
    from eureka.cli.display import ProbeProgress

    looked_at = {} if folder is None else {"before": snapshots.snapshot_before_leap(folder)}
    looked_at["after"] = snapshot
    with ProbeProgress(stages=len(looked_at)) as progress:
        return {when: snapshots.probe_answers(stage, progress.stage()) for when, stage in looked_at.items()}


def _keep(folder: RunFolder, record: ProbeRecord | None, stages: dict[str, Readings], page: Path) -> None:
    """Write the measurements into the run folder, then write its page."""
    from eureka.report.write import write_report
    from eureka.runs import Probes

    if record is not None:
        before = folder.probes() or Probes()
        folder.write_probes(Probes(record, stages or before.linear))
    write_report([folder.path], page)


def _document(folder: RunFolder, record: ProbeRecord, stages: dict[str, Readings]) -> dict[str, Any]:
    found = {when: stage.to_json() for when, stage in stages.items()}
    document: dict[str, Any] = {"run": str(folder.path), **record.to_json()}
    if (share := record.position_share) is not None:
        derived = {"ratio": share.ratio, "of_input": share.of_input, "of_logits": share.of_logits}
        document["position_share"] |= {key: value if math.isfinite(value) else None for key, value in derived.items()}
    if "after" in found:
        document["linear"] = found["after"]["found"]
    if "before" in found:
        document["before"] = {"step": found["before"]["step"], "linear": found["before"]["found"]}
    return document


def _print(record: ProbeRecord, stages: dict[str, Readings], title: str) -> None:
    from eureka.cli.table import print_table

    shown, scores = _measured(record, COLUMNS), _measured(record, INDUCTION)
    print_table(["layer", "head", *(COLUMNS[name] for name in shown)], _rows(record, shown), title)
    if "spread" in shown:
        sys.stdout.write("Plain softmax divides q·k by √d, and NormSoftmax by its spread; a clear start makes the spread √d.\n")
    if scores:
        print_table(["layer", "head", *(INDUCTION[name] for name in scores)], _rows(record, scores), "induction-head scores")
    if record.position_share is not None:
        sys.stdout.write(f"{record.position_share}\n")
    if stages:
        accuracies = [f"at step {stage.step:,}" for stage in stages.values()]
        columns = ["layer", "head", "answer", *accuracies, "chance", "bits", "of"]
        found = zip(*(stage.found for stage in stages.values()), strict=True)
        print_table(columns, map(_answer_row, found), "accuracy of logistic probes: z of each head, then the whole block")


def _measured(record: ProbeRecord, names: Iterable[str]) -> list[str]:
    return [name for name in names if any(name in site.values for site in record.sites)]


def _rows(record: ProbeRecord, shown: Sequence[str]) -> Iterator[list[str]]:
    for site in record.sites:
        heads = max(len(values) for values in site.values.values())
        for head in range(heads):
            cells = [site.values.get(name, []) for name in shown]
            yield [
                site.name,
                str(head),
                *(measurement(values[head * len(values) // heads]) if values else NONE for values in cells),
            ]


def _answer_row(stages: Sequence[LinearProbe]) -> list[str]:
    """The accuracy of one probe at each stage; chance and bits of the last stage."""
    last = stages[-1]
    place = [last.site, NONE if last.head is None else str(last.head), last.answer]
    accuracies = [measurement(one.accuracy) for one in stages]
    return [*place, *accuracies, measurement(last.chance), f"{last.bits:.2f}", f"{last.uniform_bits:.2f}"]
