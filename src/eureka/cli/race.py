"""`eureka race`: try remedies on a run, beside waiting."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from eureka.cli.budget import Budget, TrialBudgetOption, parse_budget
from eureka.cli.options import JsonOption, listed, print_json
from eureka.cli.run_study import OnOption, WorkersOption, run_study
from eureka.cli.script import (
    DEFAULT_BUDGET,
    SCRIPT_ARGUMENTS,
    AfterOption,
    ModuleOption,
    OptimizerOption,
    ThenOption,
    is_script,
    read_request,
    refuse_script_options,
    run_script,
)
from eureka.cli.table import print_table
from eureka.errors import RequestError
from eureka.formats import listing

if TYPE_CHECKING:
    from eureka.racing.race import Race
    from eureka.runs import RunFolder


def race(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="SCRIPT|RUN|MODULE:FUNCTION",
            help="A training script as it is, followed by its own arguments; or a run folder of ours, or a function that returns"
            " a Trainer, or a dict of model, batches, loss or step, and optimizer.",
        ),
    ] = None,
    module: ModuleOption = None,
    remedies: Annotated[
        str | None,
        typer.Option(
            "--remedies",
            metavar="A,B,…|all",
            help="What to try, as in rate_x10,clear_norm_softmax,norm_softmax; rate_xN is N times the learning rate, an unknown"
            " name lists all. (default: the most promising)",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            "--steps",
            metavar="N",
            min=2,
            help="Steps of each fork at most. (default: 480; of a run, as many as it was planned for)",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="STEP|plateau",
            help="Of a run folder: fork from the newest checkpoint at or before this step. (default: the last) Of a script: when"
            " to fork it. (default: plateau, at step 2,000 or after 10 minutes at the latest)",
        ),
    ] = None,
    after: AfterOption = None,
    then: ThenOption = "stop",
    optimizer: OptimizerOption = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", help="Not of a run folder: the random numbers that forks draw. (default: 0)"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="For a run folder only: where the forks are kept. (default: runs/race/RUN-at-STEP)"
        ),
    ] = None,
    on: OnOption = "local",
    workers: WorkersOption = None,
    budget: TrialBudgetOption = None,
    json: JsonOption = False,
) -> None:
    """Fork a run into one that waits and one for each remedy, train all on the same batches, and say which remedy helps.

    A script is run unchanged and watched; when its loss stops falling, its next 32 steps are taped and raced on copies.
    A run folder is forked from a checkpoint into a study: a run for each remedy, on this machine or on Ray, with a report. A
    function of yours is called once, and the race is run here on copies of what it returns; nothing of yours is changed.

    --out, --on and --workers are for a run folder only; --after, --then and --optimizer for a script only.
    """
    names = None if remedies is None or remedies == "all" else listed("--remedies", remedies, str)
    wanted: list[str] | Literal["all"] | None = "all" if remedies == "all" else names
    of_runs = {"--out": out, "--workers": workers, "--on": None if on == "local" else on}
    if module is not None or (what is not None and is_script(what)):
        if given := [option for option, value in of_runs.items() if value is not None]:
            raise RequestError(f"{listing(given)}: of a run folder only, and a script was given; leave it out.")
        request = read_request(
            what if module is None else None,
            module,
            context.meta[SCRIPT_ARGUMENTS],
            at=at,
            after=after,
            then=then,
            optimizer=optimizer,
            budget=budget,
            html=None,
            json=json,
            diagnose=False,
            race=True,
            remedies=wanted,
            steps=steps,
            seed=seed or 0,
        )
        raise typer.Exit(run_script(request))
    if what is None:
        raise RequestError("give a training script, a run folder, or a function as in my_module:my_case.")
    refuse_script_options(what, {"--after": after, "--optimizer": optimizer, "--then": None if then == "stop" else then})
    if ":" in what and not Path(what).exists():
        of_runs |= {"--at": at}
        if given := [option for option, value in of_runs.items() if value is not None]:
            raise RequestError(f"{listing(given)}: of a run folder only, and {what} names a function; leave it out.")
        _race_case(what, wanted, steps=steps, seed=seed or 0, budget=parse_budget(budget, DEFAULT_BUDGET), json=json)
    else:
        if seed is not None:
            raise RequestError(f"--seed {seed}: of a function only; the forks of {what} draw what the run would draw.")
        if at is not None and not at.isdigit():
            raise RequestError(f"--at {at}: of a run folder, expected a step, as in --at 2000.")
        _race_run(Path(what), names, remedies == "all", steps, None if at is None else int(at), out, on, workers, budget, json)


def _race_case(
    text: str, remedies: list[str] | Literal["all"] | None, *, steps: int | None, seed: int, budget: Budget, json: bool
) -> None:
    from eureka.cli.display import race_progress
    from eureka.forks.loading import load_case
    from eureka.racing.run import STEPS
    from eureka.racing.run import race as run_race

    given = load_case(text)
    with race_progress() as show:
        found: Race = run_race(
            given,
            remedies=remedies,
            steps=STEPS if steps is None else steps,
            seed=seed,
            budget=budget.seconds,
            most_steps=budget.steps,
            on_step=show,
        )
    if json:
        print_json(found.to_json())
    else:
        sys.stdout.write(f"{found}\n")


def _only_run(folder: Path) -> RunFolder:
    """The run that a folder is, or the only one that it holds: `eureka run --out` makes a folder inside."""
    from eureka.runs import RunFolder

    given = RunFolder(folder)
    if given.config() is not None or not folder.is_dir():
        return given
    inside = [one for one in map(RunFolder, sorted(folder.iterdir())) if one.path.is_dir() and one.config() is not None]
    if len(inside) > 1:
        raise RequestError(f"{folder} holds {len(inside)} runs; name one of them, such as {inside[0].path}.")
    return inside[0] if inside else given


def _race_run(
    run: Path,
    names: list[str] | None,
    everything: bool,
    steps: int | None,
    at: int | None,
    out: Path | None,
    on: str,
    workers: int | None,
    budget: str | None,
    json: bool,
) -> None:
    from eureka.racing.remedies import CATALOGUE
    from eureka.study.forking import REMEDIES, fork_run

    if run.is_file():
        raise RequestError(f"{run} is a file: a race trains on, from a run folder or from what MODULE:FUNCTION returns.")
    source = _only_run(run)
    wanted = list(REMEDIES) if everything else names
    needs_model = [name for name in wanted or () if name not in REMEDIES and name in {one.name for one in CATALOGUE}]
    if wanted is not None:
        wanted = [name for name in wanted if name not in needs_model] or wanted
    forks = fork_run(source, out, at=at, names=wanted, steps=steps)
    say = sys.stderr.write
    say(f"Forked at step {forks.step:,}; a fork ends at its leap, or at step {forks.study.configs[0].training.steps:,}.\n")
    for name, folder in forks.arms.items():
        say(f"  {name}: {folder}\n")
    for name in needs_model:
        say(f"  {name} is left out: it changes a model in memory; `eureka race MODULE:FUNCTION` has it.\n")
    for name, why in forks.skipped.items():
        say(f"  {name} is left out: {why}\n")
    run_study(f"eureka race {run.name}", [forks.study], on=on, workers=workers, budget=budget, json=json)
    if not json:
        print_table(["remedy", "steps to its leap", "loss at the end", "accuracy"], forks.rows())
        sys.stdout.write(f"{forks.verdict()}\n")
