"""One HTML file that requests nothing: a template, filled with typed data, with the style and the scripts inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup


def document(template: str, scripts: Sequence[str], *, live: Sequence[str] = (), **shown: Any) -> str:
    """A template as text.

    scripts   the parts of the page's own script, each after those that it needs; Plotly comes with them, if there are any
    live      the parts that keep the page up to date; only then may it ask its own server, and no other
    shown     what the template shows, by the name that it uses
    """
    plotly, script = (inlined(plotly_script()), inlined(own_script(scripts, live))) if scripts else ("", "")
    own = {"style": asset("page.css"), "plotly": plotly, "script": script}
    marked = {name: Markup(text) for name, text in own.items()}
    rules = policy(plotly, script, connects=bool(live))
    return _environment().get_template(template).render(**shown, policy=rules, **marked)


def plotly_script() -> str:
    """The part of plotly.js that our figures need; `vendor/README.md` says where it comes from."""
    return (resources.files("eureka.report") / "vendor" / "plotly-cartesian.min.js").read_text(encoding="utf-8")


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


def own_script(parts: Sequence[str], live: Sequence[str] = ()) -> str:
    """All parts as one function, so that they see each other and nothing else sees them.

    It is called once; or by the live parts, as `drawReport`, each time that there is something new to draw.
    """
    body = ['"use strict";', *map(asset, parts)]
    if not live:
        return "\n".join(["((live) => {", *body, "})();"])
    return "\n".join(["(() => {", "const drawReport = (live) => {", *body, "};", *map(asset, live), "})();"])


def inlined(script: str) -> str:
    """A script that can stand inside a script element; line ends as a browser reads them, for the hash of the policy."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def policy(*scripts: str, connects: bool = False) -> str:
    """What the browser shall allow: these very scripts, inline styles, and no request, or requests to the page's own server."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rules = ["default-src 'none'", f"script-src {allowed}", "style-src 'unsafe-inline'", "img-src data: blob:"]
    return "; ".join([*rules, *(["connect-src 'self'"] if connects else []), "base-uri 'none'", "form-action 'none'"])
