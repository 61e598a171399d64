"""`eureka bench`: ratios against named baselines, measured here and now."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from eureka.cli.options import JsonOption, listed, print_help_alone, print_json
from eureka.cli.table import print_table
from eureka.errors import RequestError

app = typer.Typer(invoke_without_command=True, help="Measure speed and memory against named baselines.")
QuickOption = Annotated[bool, typer.Option("--quick", help="Fewer and smaller cases: half a minute.")]
HEADER = ["operator", "tokens", "batch", "mask", "mode", "× SDPA", "× formula", "peak MB", "formula MB"]


@app.callback()
def bench(context: typer.Context) -> None:
    """Measure speed and memory against named baselines."""
    print_help_alone(context)


@app.command()
def attention(
    json: JsonOption = False,
    quick: QuickOption = False,
    op: Annotated[str | None, typer.Option("--op", metavar="A,B,…", help="Only these operators.")] = None,
    n: Annotated[str | None, typer.Option("--n", metavar="N,M,…", help="Only these numbers of tokens.")] = None,
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
    rows = bench.as_documents(bench.run(cases, progress=say))
    if json:
        print_json({"rows": rows})
    else:
        print_table(HEADER, [[_cell(value) for value in row.values()] for row in rows])
        if not (quick or bench.steps()):
            sys.stdout.write("steps of patched models were left out: transformers is not installed.\n")


def say(line: str) -> None:
    """Show on a terminal what is measured now."""
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
