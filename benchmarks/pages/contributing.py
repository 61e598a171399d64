"""Pages that are parts of CONTRIBUTING.md: the glossary, and how the code is laid out."""

from __future__ import annotations

import re

from benchmarks.pages.made import ROOT


def _section(heading: str) -> str:
    """What stands under a heading of the second level."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return text.split(f"## {heading}\n")[1].split("\n## ")[0].strip()


def glossary_page() -> str:
    """One word, one meaning."""
    lead = "One word has one meaning, in the code, the commands and these pages."
    return f"# Glossary\n\n{lead}\n\n{_section('One word, one meaning')}\n"


def architecture_page() -> str:
    """Who decides what, and the walk of a batch."""
    body = re.sub(r"^### ", "## ", _section("How the code is laid out"), flags=re.MULTILINE)
    return f"# Architecture\n\n{body}\n"
