"""Notebooks as pages. They are scripts in the percent format of jupytext: they can be read, linted and run as they are."""

from __future__ import annotations

import re

from benchmarks.pages.made import ROOT

FOLDER = ROOT / "examples/notebooks"


def notebook_pages() -> dict[str, str]:
    """The page of each notebook, by its place in the site."""
    return {
        f"notebooks/{path.stem}.md": as_page(path.read_text(encoding="utf-8"), path.name) for path in sorted(FOLDER.glob("*.py"))
    }


def as_page(script: str, name: str) -> str:
    """Markdown cells as text, code cells as code.

    >>> print(as_page("# %% [markdown]\\n# # Title\\n#\\n# Words.\\n\\n# %%\\n1 + 1\\n", "one.py").split("!!!")[0].strip())
    # Title
    <BLANKLINE>
    Words.
    <BLANKLINE>
    ```python
    1 + 1
    ```
    """
    cells = re.split(r"^# %%(.*)\n", script, flags=re.MULTILINE)[1:]
    parts = [_cell(kind.strip(), text.strip("\n")) for kind, text in zip(cells[::2], cells[1::2], strict=True)]
    note = f"!!! note\n    This is `examples/notebooks/{name}`: open it in Jupyter with jupytext, or run it with Python."
    return "\n\n".join([*parts, note]) + "\n"


def _cell(kind: str, text: str) -> str:
    if kind == "[markdown]":
        return re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    return f"```python\n{text}\n```"
