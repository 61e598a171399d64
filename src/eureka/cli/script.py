"""A training script as the target of a verb: it is run as it is, watched, and examined when its time has come."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer
from typer.core import TyperCommand

from eureka.cli.budget import Budget, parse_budget
from eureka.cli.options import as_json
from eureka.errors import EurekaError, RequestError
from eureka.files import check_folder
from eureka.formats import duration, listing, plural
from eureka.group import group_size

if TYPE_CHECKING:
    from eureka.capture.fork import Forked
    from eureka.capture.script import Script
    from eureka.capture.session import Captured, Session, When
    from eureka.doctor.finding import Diagnosis
    from eureka.racing.race import Race

DEFAULT_BUDGET = Budget(seconds=600)
NO_STEP_SECONDS = 600.0
"""After this time without a step something is said."""
EDIT_SHARE, EDIT_SECONDS = 0.25, 60.0
"""How much of the budget, and how long at most, it may take to find the line that sets a rate."""

ForkOption = Annotated[
    bool,
    typer.Option(
        "--fork",
        help="Of a script whose steps cannot be replayed, on a CPU: fork the process and let its own loop go on at other rates.",
    ),
]
ModuleOption = Annotated[
    str | None, typer.Option("-m", "--module", metavar="MODULE", help="Run a module as the script, as python -m does.")
]
AfterOption = Annotated[
    str | None, typer.Option("--after", metavar="TIME", help="Of a script: look at it after this time of training, as in 10m.")
]
ThenOption = Annotated[
    Literal["stop", "go"],
    typer.Option("--then", help="Of a script: end it after the examination, or let it go on as if nothing had happened."),
]
OptimizerOption = Annotated[
    int | None,
    typer.Option(
        "--optimizer", metavar="N", min=1, help="Of a script: which optimiser to look at. (default: that with most parameters)"
    ),
]
OURS = ("--at", "--after", "--then", "--race", "--fork", "--budget", "--html", "--json", "--optimizer")
"""Options that a person may write behind the script by mistake."""
SCRIPT_OPTIONS = ("-m", "--module")
SCRIPT_ARGUMENTS = "eureka.script_arguments"
"""Where the script's own arguments are kept in a command's context."""


class TakesScript(TyperCommand):
    """A command whose target may be a training script: all that follows the script is the script's."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Split the arguments at the script before they are read."""
        own, rest = self._split(args)
        ctx.meta[SCRIPT_ARGUMENTS] = rest
        return super().parse_args(ctx, own)

    def _split(self, args: list[str]) -> tuple[list[str], list[str]]:
        takes_value = {
            name for one in self.params for name in one.opts if name.startswith("-") and not getattr(one, "is_flag", False)
        }
        place = 0
        while place < len(args):
            one = args[place]
            if one in SCRIPT_OPTIONS:
                return args[: place + 2], args[place + 2 :]
            if one.startswith(("--module=", "-m")):
                return args[: place + 1], args[place + 1 :]
            if one == "--" or (one.startswith("-") and len(one) > 1):
                place += 2 if one in takes_value else 1
                continue
            if is_script(one):
                return args[: place + 1], args[place + 1 :]
            place += 1
        return args, []


def is_script(text: str) -> bool:
    """Return whether a target is a Python script, by its name or its first line."""
    path = Path(text)
    if path.suffix in (".py", ".pyw"):
        return True
    try:
        with path.open("rb") as opened:
            first = opened.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def refuse_script_options(what: str, given: dict[str, Any]) -> None:
    """Refuse options of a script for a target that is none."""
    if names := [option for option, value in given.items() if value is not None]:
        raise RequestError(f"{listing(names)}: of a training script only, and {what} is none; leave it out.")


@dataclass(frozen=True, kw_only=True)
class ScriptRequest:
    """What is wanted of a script."""

    script: Script
    when: When
    then: Literal["stop", "go"]
    optimizer: int | None = None
    fork: bool = False
    budget: Budget = DEFAULT_BUDGET
    html: Path | None = None
    json: bool = False
    diagnose: bool = True
    race: bool = False
    remedies: list[str] | Literal["all"] | None = None
    steps: int | None = None
    seed: int = 0


def read_request(
    target: str | None,
    module: str | None,
    arguments: list[str],
    *,
    at: str | None,
    after: str | None,
    then: Literal["stop", "go"],
    optimizer: int | None,
    budget: str | None,
    html: Path | None,
    json: bool,
    **wanted: Any,
) -> ScriptRequest:
    """Check everything before the script is started."""
    from eureka.capture.script import Script

    if html is not None:
        check_folder(html)
    when = _when(at, after)
    limit = parse_budget(budget, DEFAULT_BUDGET)
    script = Script.find(None if target is None else Path(target), module, arguments)
    _tell_misplaced(script)
    return ScriptRequest(script=script, when=when, then=then, optimizer=optimizer, budget=limit, html=html, json=json, **wanted)


def _tell_misplaced(script: Script) -> None:
    """An option of ours behind the script goes to the script, which may not know it."""
    behind = [one for one in OURS if any(argument.partition("=")[0] == one for argument in script.arguments)]
    text = script.file.read_text(encoding="utf-8", errors="replace")
    if unknown := [one for one in behind if one not in text]:
        say(f"{listing(unknown)} stands behind the script and goes to it; options of eureka stand before the script.")


def _when(at: str | None, after: str | None) -> When:
    from eureka.capture.session import When

    if at is not None and after is not None:
        raise RequestError(f"--at {at} and --after {after}: give one of the two.")
    if after is not None:
        limit = parse_budget(after, Budget(), option="--after")
        if math.isfinite(limit.steps):
            raise RequestError(f"--after {after}: expected a time such as 90s or 10m; --at takes a step.")
        return When(seconds=limit.seconds)
    if at is None or at == "plateau":
        return When()
    if not at.isdigit() or int(at) < 1:
        raise RequestError(f"--at {at}: expected a step, as in --at 2000, or plateau.")
    return When(step=int(at))


def run_script(request: ScriptRequest) -> int:
    """Run the script, examine it when its time has come, and return the exit code."""
    from eureka.capture.fork import end_arm
    from eureka.capture.session import Session

    with _own_output(request.json) as output:
        examination = _Examination(request, output)
        session = Session(
            request.when,
            examination.examine,
            examination.refuse,
            optimizer=request.optimizer,
            forked=examination.tell_forked if request.fork else None,
            say=say,
        )
        name = request.script.title
        say(
            f"{name} is taken for a training script and run as it is; {_time_of(request.when)}, the next"
            f" steps are taped and examined on copies. Nothing leaves this machine. {_how_to_ask()}"
        )
        session.start()
        with _asked_by_signals(session.ask), _told_if_idle(session, request.when):
            process = os.getpid()
            code = request.script.run()
            if os.getpid() != process:  # a fork, of ours or of the script's: the rest is the parent's
                if session.watch.is_arm:
                    end_arm()
                return code
            examination.ended = True
            session.end()
        return examination.exit_code(code, session)


def say(text: str) -> None:
    """Tell the person at the terminal; standard output is the script's. Of several processes the first one speaks."""
    if os.environ.get("RANK", "0") != "0":
        return
    sys.stderr.write(f"eureka: {text}\n")
    sys.stderr.flush()


def _time_of(when: When) -> str:
    if when.step is not None:
        return f"at step {when.step:,}"
    if when.seconds is not None:
        return f"after {duration(when.seconds)} of training"
    return "when its loss stops falling (at step 2,000 or after 10 minutes at the latest)"


def _how_to_ask() -> str:
    if not hasattr(signal, "SIGUSR1"):
        return ""
    keys = "Ctrl-\\ or " if sys.stdin is not None and sys.stdin.isatty() else ""
    return f"{keys}kill -USR1 {os.getpid()} asks now."


class _Examination:
    """What is done with a captured run, and what it came to."""

    def __init__(self, request: ScriptRequest, output: TextIO) -> None:
        self.request, self.output = request, output
        self.refusal = ""
        self.failed = False
        self.ended = False
        """whether the script has come to its end"""

    def refuse(self, sentence: str, *, goes_on: bool) -> None:
        """Say that the run cannot be captured; end it if nothing else is wanted of it."""
        self.refusal = sentence
        say(sentence)
        if not goes_on and not self.ended and self.request.then == "stop":
            say("the script is ended here; --then go lets it go on. Other ways: --fork, or eureka diagnose MODULE:FUNCTION.")
            raise SystemExit(1)  # between two steps: `finally` blocks of the script run

    def examine(self, captured: Captured) -> None:
        """Diagnose and race the captured run, between two of its steps."""
        try:
            with contextlib.redirect_stdout(None):  # what the script's modules print on copies
                text, document = self._examined(captured)
        except EurekaError as error:
            self.failed = True
            say(str(error))
        except Exception as error:  # a fault of ours must not end the user's run
            self.failed = True
            say(f"the examination failed with {type(error).__name__}: {error}")
        else:
            self.output.write(as_json(document) if self.request.json else text)
            self.output.flush()
        if self.request.then == "stop" and not self.ended:
            say(f"the script is ended here, at step {captured.at_step:,}; --then go lets it go on.")
            raise SystemExit(1 if self.failed else 0)

    def tell_forked(self, forked: Forked) -> None:
        """Report what forks of the process came to."""
        document = {"of": self.request.script.title, "forked": forked.to_json()}
        name = self.request.script.title
        self.output.write(as_json(document) if self.request.json else f"{name}, forked:\n\n{forked}\n")
        self.output.flush()
        if self.request.then == "stop":
            say("the script is ended here; --then go lets it go on.")
            raise SystemExit(0)

    def exit_code(self, code: int, session: Session) -> int:
        """Return that of the command: the script's own, unless what was asked for was not done."""
        if session.examined and not self.failed and not self.refusal:
            return code  # examined, here or on the first rank
        if self.refusal or self.failed:
            return code or 1
        steps = session.main.steps if session.main is not None else 0
        ended = f"the script ended with exit code {code}" if code else "the script ended"
        if not steps:
            say(f"{ended}, and no optimiser of torch has made a step in this process; nothing was examined.")
        else:
            kept = session.kept or "to keep its last steps would have taken more than 2 % of its time"
            say(
                f"{ended} after {plural(steps, 'step')}, and was to be examined {_time_of(self.request.when)}. Nothing"
                f" was examined: {kept}. Give a step that it comes to, as in --at {max(steps // 2, 1)}."
            )
        return code or 1

    def _examined(self, captured: Captured) -> tuple[str, dict[str, Any]]:
        """Return the report as text and as a JSON value; the page is written on the way."""
        begun, limit = time.monotonic(), self.request.budget
        about = captured.about(self.request.script.title)
        document: dict[str, Any] = {"of": self.request.script.title, "script": captured.to_json()}
        parts, found = ["\n".join(about)], None
        if self.request.diagnose:
            found = self._diagnosed(captured, limit.part(0.5) if self.request.race else limit)
            about += (changed := self._compared(found))
            parts += [*changed, str(found)]
            document |= {**found.to_json(), "changed": changed}
        if self.request.race:
            raced = self._raced(captured, found, limit.without(time.monotonic() - begun, captured.step_seconds))
            parts.append(str(raced))
            document["race"] = raced.to_json()
            about.append(f"The race: {raced.summary}")
        if self.request.html is not None and found is not None:
            from eureka.doctor.diagnose import curve_of
            from eureka.report.diagnosis import write_diagnosis

            curve, page = curve_of(captured.setup.log), self.request.html
            try:
                write_diagnosis(found, page, title=self.request.script.title, curve=curve, about=about)
            except OSError as error:  # a full disk shall not cost the diagnosis
                self.failed = True
                say(f"{page} was not written: {error.strerror}.")
            else:
                parts.append(str(page))
                document["report"] = str(page)
        return "\n\n".join(parts) + "\n", document

    def _diagnosed(self, captured: Captured, limit: Budget) -> Diagnosis:
        from eureka.capture.advice import with_lines
        from eureka.cli.display import check_bar
        from eureka.doctor import diagnose as doctor

        steps, seconds = doctor.step_limit(), limit.in_seconds(captured.step_seconds)
        say(
            f"the diagnosis takes at most about {plural(steps, 'step')},"
            f" {duration(min(steps * captured.step_seconds, seconds))}; its limit is {_told(limit)}."
        )
        with check_bar(len(doctor.CHECKS)) as on_check:
            found = doctor.diagnose(captured.setup, budget=limit.seconds, most_steps=limit.steps, on_check=on_check)
        trying = min(EDIT_SHARE * limit.seconds, EDIT_SECONDS)
        return with_lines(found, captured, self.request.script, seconds=trying, alone=group_size() == 1)

    def _compared(self, found: Diagnosis) -> list[str]:
        """What has changed since the last diagnosis of this script, in a sentence."""
        from eureka.capture.memory import remember

        before = remember(self.request.script.key, found.cause)
        return (
            [] if before in (None, found.cause) else [f"At its last diagnosis this script was {before}, now it is {found.cause}."]
        )

    def _raced(self, captured: Captured, found: Diagnosis | None, budget: Budget) -> Race:
        from eureka.capture.advice import change_of_script
        from eureka.cli.display import race_progress
        from eureka.racing.run import STEPS
        from eureka.racing.run import race as run_race

        wanted = self.request.remedies
        if wanted is None and found is not None and found.remedies:
            wanted = list(found.remedies)
        with race_progress() as show:
            raced = run_race(
                captured.setup,
                remedies=wanted,
                steps=self.request.steps or STEPS,
                seed=self.request.seed,
                budget=budget.seconds,
                most_steps=budget.steps,
                on_step=show,
            )
        raced.change_of_script = (
            change_of_script(raced.code, captured, self.request.script, seconds=EDIT_SECONDS, alone=group_size() == 1)
            or raced.code
        )
        return raced


def _told(budget: Budget) -> str:
    return f"{budget.steps:,.0f} steps" if math.isfinite(budget.steps) else duration(budget.seconds)


# The process around the script


@contextlib.contextmanager
def _own_output(json: bool) -> Iterator[TextIO]:
    """Give where our own report goes; for JSON, all that the script prints goes to standard error."""
    if not json:
        yield sys.stdout
        return
    sys.stdout.flush()
    ours = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(ours, "w", encoding="utf-8") as output:
            yield output
            sys.stdout.flush()
    finally:
        pass  # 1 stays standard error: the script may print as the interpreter ends


@contextlib.contextmanager
def _asked_by_signals(ask: Callable[[], None]) -> Iterator[None]:
    """Ctrl-\\ and SIGUSR1 ask, unless the script has a handler of its own; Ctrl-C and SIGTERM are the script's."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    numbers = [getattr(signal, name) for name in ("SIGQUIT", "SIGUSR1") if hasattr(signal, name)]
    for number in numbers:
        signal.signal(number, lambda *_: ask())
    from multiprocessing import util

    spawn = util.spawnv_passfds

    def spawn_without_quit(*args: Any) -> Any:
        # Ctrl-\ goes to all processes of the terminal; workers that are spawned have no handler and would end.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGQUIT])
        try:
            return spawn(*args)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    util.spawnv_passfds = spawn_without_quit  # type: ignore[assignment]
    try:
        yield
    finally:
        util.spawnv_passfds = spawn


@contextlib.contextmanager
def _told_if_idle(session: Any, when: When) -> Iterator[None]:
    """Say once if no optimiser has made a step for long: nothing will be examined until one does."""
    seconds = when.seconds if when.seconds is not None else NO_STEP_SECONDS

    def tell() -> None:
        if session.watch.first_step_at is None and not session.done:
            say(
                f"no optimiser of torch has made a step in {duration(seconds)}, and backward was called"
                f" {plural(session.watch.backwards, 'time')}; if the training runs in another process, it is not seen here."
            )

    timer = threading.Timer(seconds, tell)
    timer.daemon, timer.name = True, "eureka: has it made a step?"

    def end_timer() -> None:  # Python warns of a fork in a process of several threads
        timer.cancel()
        timer.join()

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=end_timer)
    timer.start()
    try:
        yield
    finally:
        end_timer()
