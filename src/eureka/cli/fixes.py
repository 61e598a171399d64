"""`eureka fixes` lists the fixes; `eureka fixes show NAME` says what one does, and which settings it takes."""

from __future__ import annotations

import inspect
import sys
import textwrap
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from eureka.cli import listing
from eureka.cli.completion import complete_fix
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table
from eureka.errors import UnknownNameError

WIDTH, BASELINE, DEFAULT_START = 110, "softmax", "paper"
app = typer.Typer(
    invoke_without_command=True,
    help="List the fixes (--fix) and starts (--start), or show one: what it does, its settings, its source.",
)


@app.callback()
def fixes(context: typer.Context, json: JsonOption = False) -> None:
    """List the fixes: attention operators that `--fix` and `eureka.patch` take; and the starts that `--start` takes."""
    if context.invoked_subcommand is None:
        listing.fixes(json)


@dataclass(frozen=True)
class FixSetting:
    """A setting of a fix."""

    name: str
    default: Any
    kind: str


@dataclass(frozen=True)
class FixCard:
    """All about a fix."""

    name: str
    summary: str
    formula: str
    settings: list[FixSetting]
    source: str
    use: list[str]


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A fix, a start, or module:Class.", autocompletion=complete_fix)],
    json: JsonOption = False,
) -> None:
    """Say what a fix computes, which settings it takes and with which defaults, where it comes from, and how to use it.

    Of a start it says what it changes before the first step.
    """
    card = start_card(name) or fix_card(_known(name))
    if json:
        print_json(asdict(card))
        return
    sys.stdout.write(f"{card.name}: {card.summary}\n\n" if card.summary else f"{card.name}\n\n")
    sys.stdout.write(f"{textwrap.fill(card.formula, WIDTH)}\n\n")
    if card.settings:
        rows = [(one.name, _shown(one.default), one.kind) for one in card.settings]
        print_table(["setting", "default", "what it may be"], rows)
    else:
        sys.stdout.write("It has no settings.\n\n")
    if card.source:
        sys.stdout.write(f"Source: {card.source}\n\n")
    sys.stdout.write("Use it:\n" + "".join(f"  {line}\n" for line in card.use))


def _known(name: str) -> str:
    """The name of a fix, or module:Class; an unknown one lists fixes and starts."""
    from eureka.attention.registry import FIXES
    from eureka.models.start import STARTS

    if ":" not in name and name not in FIXES.names():
        raise UnknownNameError("fix or start", name, [*FIXES.names(), *STARTS])
    return name


def fix_card(name: str) -> FixCard:
    """What is known of a fix; imports it."""
    from eureka.attention.registry import FIXES
    from eureka.cli.keys import FIXED, kind_of

    entry, schema = FIXES.entry(name), FIXES.schema(name)
    kinds = {key: FIXED if key in entry.preset else kind_of(info) for key, info in schema.model_fields.items()}
    defaults = {key: entry.preset.get(key, info.get_default()) for key, info in schema.model_fields.items()}
    settings = [FixSetting(key, defaults[key], kind) for key, kind in kinds.items()]
    formula = _formula(FIXES.find_class(name))
    return FixCard(name, entry.summary, formula, settings, entry.source, _use(name, settings))


def start_card(name: str) -> FixCard | None:
    """What is known of a start; None if no start has the name."""
    from eureka.models.start import EXPLANATION, STARTS

    kind = {str(key): kind for key, kind in STARTS.items()}.get(name)
    if kind is None:
        return None
    given = ", ".join(f"{key}={value}" for key, value in {"positions": kind.positions, "logits": kind.logits}.items())
    call = [] if kind.positions is kind.logits is None else [f"eureka.clear_start(model, inputs, {given})"]
    beside = "" if name == DEFAULT_START else f"{DEFAULT_START},"
    return FixCard(name, kind.summary, EXPLANATION, [], "", [f"eureka compare tiles --start {beside}{name}", *call])


def _formula(target: Any) -> str:
    """The first paragraph of what the class says of itself."""
    return " ".join(inspect.cleandoc(target.__doc__ or "").partition("\n\n")[0].split())


def _use(name: str, settings: list[FixSetting]) -> list[str]:
    """On the command line and in Python; with the first setting that can be chosen, as an example."""
    from eureka.cli.keys import FIXED
    from eureka.report.introduction import SCHEDULED

    free = next((one for one in settings if one.kind != FIXED and one.default is not None), None)
    chosen = f":{free.name}={_shown(free.default)}" if free else ""
    given = f", settings={{{free.name!r}: {free.default!r}}}" if free else ""
    steps = ", total_steps=10_000" if name in SCHEDULED else ""
    beside = "" if name == BASELINE else f"{BASELINE},"
    return [f"eureka compare tiles --fix {beside}{name}{chosen}", f'eureka.patch(model, "{name}"{given}{steps})']


def _shown(value: Any) -> str:
    from eureka.formats import setting

    return setting(value)
