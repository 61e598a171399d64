"""`eureka diagnose`: why a run does not learn."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eureka.cli.budget import Budget, TrialBudgetOption, parse_budget
from eureka.cli.options import JsonOption, print_json
from eureka.cli.script import (
    DEFAULT_BUDGET,
    SCRIPT_ARGUMENTS,
    AfterOption,
    ForkOption,
    ModuleOption,
    OptimizerOption,
    ThenOption,
    is_script,
    read_request,
    refuse_script_options,
    run_script,
    say,
)
from eureka.errors import DamagedRunError, RequestError
from eureka.files import check_folder
from eureka.formats import plural

if TYPE_CHECKING:
    from eureka.forks.setup import Setup
    from eureka.runs import RunFolder

FUNCTION = re.compile(r"[\w.]+:[\w.]+")
HANDING_OVER = """\
# in train_setup.py
def stuck():
    return {
        "model": model,            # as it is now
        "batches": loader,         # a DataLoader or a list
        "loss": lambda model, batch: ...,
        "optimizer": optimizer,
        "log": "loss.csv",
    }

# then: eureka diagnose train_setup:stuck
"""
UNKNOWN = (
    "A log tells whether a run is stuck, not why: whether weights and gradients move, whether labels fit the inputs, what the"
    " model sees, and whether attention is the cause, can only be found with the model and its data."
)


def diagnose(
    context: typer.Context,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="SCRIPT|LOG|RUN|MODULE:FUNCTION",
            help="A training script as it is, followed by its own arguments; or a log of a loss, a run folder (or a checkpoint in"
            " it), or a function that returns a Trainer, or a dict with model, batches, loss or step, optimizer and log.",
        ),
    ] = None,
    module: ModuleOption = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="STEP|plateau",
            help="Of a script: when to look at it. (default: plateau, at step 2,000 or after 10 minutes at the latest)",
        ),
    ] = None,
    after: AfterOption = None,
    then: ThenOption = "stop",
    optimizer: OptimizerOption = None,
    race: Annotated[bool, typer.Option("--race", help="Of a script: race the remedies, too, on the same steps.")] = False,
    fork: ForkOption = False,
    budget: TrialBudgetOption = None,
    html: Annotated[Path | None, typer.Option("--html", metavar="PAGE", help="Write the diagnosis as a page, too.")] = None,
    json: JsonOption = False,
) -> None:
    """Say why a run does not learn, how sure that is and what to do, by experiments on copies of its model.

    A script is run unchanged, with all arguments that follow it, and watched; when its loss stops falling, its next 32 steps are
    taped, replayed to prove the tape, and examined on copies. Options of ours stand before the script. Nothing of the run is
    changed.
    """
    if module is not None or (what is not None and is_script(what)):
        request = read_request(
            what if module is None else None,
            module,
            context.meta[SCRIPT_ARGUMENTS],
            at=at,
            after=after,
            then=then,
            optimizer=optimizer,
            budget=budget,
            html=html,
            json=json,
            race=race,
            fork=fork,
        )
        raise typer.Exit(run_script(request))
    if what is None:
        raise RequestError("give a training script, a log, a run folder, or a function as in my_module:my_case.")
    given = {
        "--at": at,
        "--after": after,
        "--optimizer": optimizer,
        "--race": race or None,
        "--fork": fork or None,
        "--then": None if then == "stop" else then,
    }
    refuse_script_options(what, given)
    if html is not None:
        check_folder(html)
    limit = parse_budget(budget, DEFAULT_BUDGET)
    path = Path(what)
    if not path.exists():
        setup = _function(what)
        say(f"{what} is taken for a function that hands a run over.")
        _diagnose(setup, what, limit, html, json)
    elif (run := _run_of(path)) is not None:
        from eureka.snapshots import hand_over_run

        say(f"{what} is taken for a run folder of ours.")
        _diagnose(hand_over_run(run, path if path.is_file() else None), what, limit, html, json)
    else:
        say(f"{what} is taken for a log.")
        _say_log(path, html, json)


def _function(what: str) -> Setup:
    if not FUNCTION.fullmatch(what):
        raise RequestError(f"{what} is not there; give a log, a run folder, or a function as in my_module:my_case.")
    from eureka.forks.loading import load_case

    return load_case(what)


def _run_of(path: Path) -> RunFolder | None:
    """The run that a path names; None if it is something else, which may be a log."""
    from eureka.runs import RunFolder, find_runs

    folder = RunFolder(path.parent.parent if path.suffix == ".pt" else path)
    try:
        if (path.is_dir() or path.suffix == ".pt") and folder.config() is not None:
            return folder
    except DamagedRunError:  # other programs have a config.json too
        return None
    if path.is_dir() and (runs := find_runs(path)):
        raise RequestError(f"{path} holds {plural(len(runs), 'run')}; name one, as in {runs[0].path}.")
    return None


def _diagnose(given: Setup, what: str, budget: Budget, html: Path | None, json: bool) -> None:
    from eureka.cli.display import check_bar
    from eureka.doctor import diagnose as doctor

    with check_bar(len(doctor.CHECKS)) as on_check:
        found = doctor.diagnose(given, budget=budget.seconds, most_steps=budget.steps, on_check=on_check)
    if html is not None:
        from eureka.report.diagnosis import write_diagnosis

        write_diagnosis(found, html, title=what, curve=doctor.curve_of(given.log))
    if json:
        print_json({"of": what, **found.to_json(), **({"report": str(html)} if html else {})})
    else:
        sys.stdout.write(f"{found}\n" + (f"{html}\n" if html else ""))


def _say_log(path: Path, html: Path | None, json: bool) -> None:
    """What a log tells, what it cannot tell, and how to hand over the rest."""
    from eureka.cli.detect import document, print_log
    from eureka.curves.examination import Examination

    found = Examination().of(path)
    if html is not None:
        from eureka.report.log_page import write_log_page

        write_log_page([found], html)
    if json:
        known = document([found]) | {"unknown": UNKNOWN, "hand_over": HANDING_OVER}
        print_json({"of": str(path), **known, **({"report": str(html)} if html else {})})
        return
    print_log(found)
    sys.stdout.write(f"{UNKNOWN} Hand them over:\n\n{HANDING_OVER}" + (f"{html}\n" if html else ""))
