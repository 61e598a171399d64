"""The page: what it shows as typed data, rendered with its style and scripts into one file that requests nothing."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from eureka.report.attention_figures import AttentionFigure, AttentionMaps, ReadingPicture
from eureka.report.comparisons import Verdicts, WaitingFigure, WaitingPicture
from eureka.report.curve_data import CurveData
from eureka.report.details import ConfigDetails, Plateau, Told
from eureka.report.groups import Fix
from eureka.report.headline import Sentence
from eureka.report.results import Download, HeatMap, Table
from eureka.study.commands import Commands

SCRIPTS = ("common.js", "layout.js", "curves.js", "waiting.js", "attention.js", "maps.js", "readings.js", "page.js")
"""The parts of the page's own script, each after those that it needs."""


@dataclass(frozen=True)
class ScriptData(CurveData):
    """What the script draws; it calls this `study`."""

    waiting: list[WaitingPicture]
    inside: AttentionFigure | None
    maps: list[AttentionMaps]
    readings: list[ReadingPicture]


@dataclass(frozen=True)
class Page:
    """What the template shows, in its order."""

    title: str
    subtitle: str
    fixes: list[Fix]
    headline: Sentence
    verdicts: list[Verdicts]
    notes: list[str]
    panel_word: str
    panels: list[str]
    """the choices of a panel"""
    waiting: WaitingFigure | None
    heat_map: HeatMap | None
    over_rates: Table | None
    downloads: list[Download]
    results: Table | None
    config: ConfigDetails
    runs: Table
    versions: Told
    plateau: Plateau | None
    again: Commands
    data: ScriptData


def render(page: Page) -> str:
    """The page as text."""
    from plotly.offline import get_plotlyjs

    plotly, script = inlined(get_plotlyjs()), inlined(own_script())
    template = _environment().get_template("page.html.j2")
    own = {"style": asset("page.css"), "plotly": plotly, "script": script}
    return template.render(page=page, policy=policy(plotly, script), **{name: Markup(text) for name, text in own.items()})


def _environment() -> Environment:
    """Every text is escaped; only `Markup` is taken as it is."""
    found = Environment(
        loader=PackageLoader("eureka.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.policies["json.dumps_kwargs"] = {"default": vars, "separators": (",", ":"), "allow_nan": False}
    return found


def asset(name: str) -> str:
    """A file of the page."""
    return (resources.files("eureka.report") / "assets" / name).read_text(encoding="utf-8")


def own_script() -> str:
    """All parts as one function, so that they see each other and nothing else sees them."""
    return "\n".join(["(() => {", '"use strict";', *map(asset, SCRIPTS), "})();"])


def inlined(script: str) -> str:
    """A script that can stand inside a script element; line ends as a browser reads them, for the hash of the policy."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def policy(*scripts: str) -> str:
    """What the browser shall allow: these very scripts, inline styles, and no request."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rules = ["default-src 'none'", f"script-src {allowed}", "style-src 'unsafe-inline'", "img-src data: blob:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])
