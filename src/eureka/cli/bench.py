"""`eureka bench`: ratios against named baselines, measured here and now."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from eureka.cli.options import JsonOption, listed, print_json
from eureka.cli.table import print_table
from eureka.errors import RequestError

app = typer.Typer(no_args_is_help=True, help="Measure speed and memory against named baselines.")
QuickOption = Annotated[bool, typer.Option("--quick", help="Fewer and smaller cases: half a minute.")]
HEADER = ["operator", "tokens", "batch", "mask", "mode", "× SDPA", "× formula", "peak MB", "formula MB"]


@app.callback()
def bench() -> None:
    """Measure speed and memory against named baselines."""


@app.command()
def attention(
    json: JsonOption = False,
    quick: QuickOption = False,
    op: Annotated[str | None, typer.Option("--op", metavar="A,B,…", help="Only these operators.")] = None,
    n: Annotated[str | None, typer.Option("--n", metavar="N,M,…", help="Only these lengths.")] = None,
) -> None:
    """Time and memory of each operator beside PyTorch's fused attention and beside its own printed formula."""
    from eureka.bench import attention as bench

    cases = bench.plan(quick)
    if op is not None:
        wanted = listed("--op", op, str)
        cases = [case for case in cases if case.op in wanted]
    if n is not None:
        lengths = listed("--n", n, int)
        cases = [case for case in cases if case.n in lengths]
    if not cases:
        raise RequestError(f"--op {op} with --n {n}: nothing of that is measured{' with --quick' if quick else ''}.")
    rows = bench.as_documents(bench.run(cases, progress=_say))
    if json:
        print_json({"rows": rows})
    else:
        print_table(HEADER, [[_cell(value) for value in row.values()] for row in rows])
        if not (quick or bench.steps()):
            sys.stdout.write("steps of patched models were left out: transformers is not installed.\n")


def _say(line: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{line} …\n")
        sys.stderr.flush()


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return (
        f"{value:,.2f}"
        if isinstance(value, float) and value < 100
        else f"{value:,}"
        if isinstance(value, (int, float))
        else str(value)
    )


@app.command()
def training(
    json: JsonOption = False,
    recipes: Annotated[str | None, typer.Option("--recipes", metavar="A,B,…", help="Only these recipes.")] = None,
) -> None:
    """Our training step beside the plainest loop and the machine's matrix-multiply rate; how well the pool uses the cores."""
    from eureka.bench import training as bench

    document = bench.run(listed("--recipes", recipes, str) if recipes else bench.CHOSEN, progress=_say)
    if json:
        print_json(document)
        return
    print_table(
        ["recipe", "batch", "× bare loop", "share of matmul rate", "samples a second"],
        [
            [
                r["recipe"],
                str(r["batch_size"]),
                f"{r['vs_bare_loop']:.2f}",
                f"{r['share_of_matmul_rate']:.2f}",
                f"{r['samples_per_s']:,.0f}",
            ]
            for r in document["rows"]
        ],
    )
    for name, reason in document["skipped"].items():
        sys.stdout.write(f"{name} was left out: {reason}\n")
    sys.stdout.write(
        f"pool efficiency {document['pool_efficiency']:.2f}, matrix products {document['matmul_gflops']:.0f} GFLOP/s\n"
    )


@app.command()
def tasks(
    json: JsonOption = False,
    only: Annotated[str | None, typer.Option("--recipes", metavar="A,B,…", help="Only the tasks of these recipes.")] = None,
) -> None:
    """How fast each task gives samples: alone, beside one-at-a-time assembly, and as a share of a training step."""
    from eureka.bench import tasks as bench

    rows, skipped = bench.run(listed("--recipes", only, str) if only else bench.plan(), progress=_say)
    if json:
        print_json({"rows": rows, "skipped": skipped})
        return
    print_table(
        ["task", "samples a second", "× one at a time", "share of a step"],
        [[r["task"], f"{r['samples_per_s']:,}", _cell(r["vs_per_sample"]), f"{r['share_of_step']:.1%}"] for r in rows],
    )
    for row in skipped:
        sys.stdout.write(f"{row['task']} was left out: {row['reason']}\n")


@app.command()
def detect(
    json: JsonOption = False,
    curves: Annotated[int, typer.Option("--curves", metavar="N", min=1, help="Planted curves of each kind.")] = 10,
) -> None:
    """Our detector of Eureka-moments beside ruptures' change-point searches, each at its best penalty, on the same curves."""
    from eureka.bench import detect as bench

    rows = bench.as_documents(bench.run(curves, progress=_say))
    if json:
        print_json({"rows": rows})
        return
    print_table(
        ["detector", "curves", "precision", "recall", "seconds", "points"],
        [
            [
                r["detector"],
                str(r["curves"]),
                f"{r['precision']:.3f}",
                f"{r['recall']:.3f}",
                f"{r['seconds']:.2f}",
                f"{r['points']:,}",
            ]
            for r in rows
        ],
    )


@app.command()
def patched(json: JsonOption = False) -> None:
    """A training step of Hugging Face's RoBERTa and GPT-2, patched or probed, beside the same step without."""
    from eureka.bench import patched as bench

    rows = bench.run(progress=_say)
    if json:
        print_json({"rows": rows})
    else:
        print_table(["model", "padded", "with", "× unpatched"], [[_cell(value) for value in row.values()] for row in rows])
