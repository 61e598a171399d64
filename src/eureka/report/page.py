"""The frame of the page: its template, style and scripts put into one file that asks nobody for anything."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from eureka.report.markup import Html

SCRIPTS = ("common.js", "curves.js", "waiting.js", "inside.js", "maps.js", "readings.js", "page.js")
"""The page's own script, in the order in which its parts need each other."""


def fill_page(**parts: Html) -> str:
    """The page with its parts in place."""
    from plotly.offline import get_plotlyjs

    library, script = inlined(get_plotlyjs()), inlined(own_script())
    everything = {
        **parts,
        "policy": Html(policy(library, script)),
        "style": Html(asset("page.css")),
        "plotly": Html(library),
        "script": Html(script),
    }
    # one pass: what was put in is never looked at again
    return re.sub(r"\{\{(\w+)\}\}", lambda match: everything[match[1]], asset("page.html"))


def asset(name: str) -> str:
    """A file of the page."""
    return (resources.files("eureka.report") / "assets" / name).read_text(encoding="utf-8")


def own_script() -> str:
    """All parts as one, so that they see each other and nobody else sees them."""
    return "\n".join(["(() => {", '"use strict";', *map(asset, SCRIPTS), "})();"])


def inlined(script: str) -> str:
    """A script that can stand inside a script element; line ends as a browser reads them, for the hash of the policy."""
    return script.replace("\r\n", "\n").replace("</script", "<\\/script").replace("<!--", "<\\!--")


def policy(*scripts: str) -> str:
    """What the browser shall allow: these very scripts, inline styles, and no request to anywhere."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    rules = ["default-src 'none'", f"script-src {allowed}", "style-src 'unsafe-inline'", "img-src data: blob:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])
