"""Ask tools about every case, and judge their answers."""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks.faults.judge import Answer, Judged, verdict
from benchmarks.faults.planted.every import PLANS
from benchmarks.faults.setup import Plan
from benchmarks.faults.tools.neuraldbg import NEURALDBG
from benchmarks.faults.tools.ours import EUREKA
from benchmarks.faults.tools.tool import Tool
from benchmarks.faults.tools.torchdiag import TORCHDIAG
from benchmarks.faults.tools.torchmortem import TORCHMORTEM
from benchmarks.faults.tools.training_doctor import TRAINING_DOCTOR
from eureka.errors import RequestError
from eureka.formats import listing

TOOLS = {tool.name: tool for tool in (EUREKA, TRAINING_DOCTOR, TORCHMORTEM, NEURALDBG, TORCHDIAG)}
CAUSES = sorted({plan.cause for plan in PLANS})


def chosen(only: str | None) -> list[Plan]:
    """The plans of a cause, or those whose name contains a text."""
    plans = [plan for plan in PLANS if only is None or only == plan.cause or (only not in CAUSES and only in plan.name)]
    if not plans:
        raise RequestError(f"--only {only}: no case has that cause or name; the causes are {listing(CAUSES)}.")
    return plans


def named(names: Sequence[str]) -> list[Tool]:
    """Tools by their names; one that is not installed is refused."""
    for name in names:
        if name not in TOOLS:
            raise RequestError(f"--tool {name}: there is no such tool; choose from {listing(list(TOOLS))}.")
        if importlib.util.find_spec(TOOLS[name].module) is None:
            raise RequestError(f"--tool {name} is not installed here; in an environment of its own: pip install {name}.")
    return [TOOLS[name] for name in names]


def judged(tools: Sequence[Tool], plans: Sequence[Plan], seed: int, say: Callable[[str], None]) -> Iterator[Judged]:
    with tempfile.TemporaryDirectory() as folder:
        for tool in tools:
            for plan in plans:
                answer = _asked(tool, plan, seed, Path(folder))
                found = tuple(" or ".join(sorted(finding)) or "no cause" for finding in answer.findings)
                judgement = verdict(plan.cause, plan.also, answer)
                say(f"{tool.name}: {plan.name}: {judgement}")
                yield Judged(tool.name, plan.name, plan.cause, plan.kind, judgement, found, answer.cost, answer.error)


def _asked(tool: Tool, plan: Plan, seed: int, folder: Path) -> Answer:
    """A tool that fails on a case is told so in the table; the others go on."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tool.ask(plan, seed, folder)
    except Exception as error:
        return Answer((), error=f"{type(error).__name__}: {error}")
