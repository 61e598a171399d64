"""All pages in one folder: those that are written, and those that are made from the code and the committed results."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from benchmarks.pages.api import api_page
from benchmarks.pages.commands import commands_page
from benchmarks.pages.contributing import architecture_page, glossary_page
from benchmarks.pages.fix_cards import fix_card
from benchmarks.pages.links import COPIED, moved, site_path
from benchmarks.pages.made import ROOT, table
from benchmarks.pages.notebooks import notebook_pages
from benchmarks.pages.pictures import pictures
from benchmarks.pages.run_folder import run_folder_page
from benchmarks.pages.symptom_page import symptom_page
from benchmarks.pages.task_cards import task_card
from eureka.attention.registry import FIXES
from eureka.registry import Registry
from eureka.tasks.registry import TASKS


def assemble(out: Path) -> None:
    """Write the site's pages to `out`, which is emptied first."""
    shutil.rmtree(out, ignore_errors=True)
    for path in sorted(found for pattern in COPIED for found in ROOT.glob(pattern)):
        _copy(path, out)
    for name, picture in pictures().items():
        (out / name).write_bytes(picture)
    for name, text in made_pages().items():
        _write(out / name, text)
    for entry in TASKS.entries():
        text, drawn = task_card(entry)
        _write(out / f"tasks/{entry.name}.md", text)
        if drawn is not None:
            (out / f"tasks/{entry.name}.png").write_bytes(drawn)


def made_pages() -> dict[str, str]:
    """The text of each page that is made, by its place; cards of tasks come with pictures and are not among them."""
    cards = {f"fixes/{entry.name}.md": fix_card(entry) for entry in FIXES.entries()}
    return {
        **cards,
        **notebook_pages(),
        "fixes/index.md": _index("Fixes", "A fix is an attention operator with its settings. One card each.", FIXES),
        "tasks/index.md": _index("Tasks", "What models are trained on. One card each.", TASKS),
        "symptoms.md": symptom_page(),
        "reference/commands.md": commands_page(),
        "reference/api.md": api_page(),
        "reference/run_folder.md": run_folder_page(),
        "reference/glossary.md": glossary_page(),
        "reference/architecture.md": architecture_page(),
    }


def _index(title: str, lead: str, registry: Registry[Any]) -> str:
    rows = [(f"[{entry.name}]({entry.name}.md)", entry.summary, entry.source) for entry in registry.entries()]
    return f"# {title}\n\n{lead}\n\n{table([registry.kind, 'what it is', 'source'], rows)}"


def _copy(path: Path, out: Path) -> None:
    """A file of the repository to its place in the site; links of a page go where their targets went."""
    source = path.relative_to(ROOT).as_posix()
    target = out / str(site_path(source))
    if path.suffix == ".md":
        _write(target, moved(path.read_text(encoding="utf-8"), source))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
