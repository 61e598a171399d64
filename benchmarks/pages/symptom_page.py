"""From what people see to the cause: a table of all causes of `eureka.diagnose`, then one short section each."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from benchmarks.pages.made import table
from benchmarks.pages.symptoms import SYMPTOMS, Symptom
from eureka import doctor
from eureka.doctor.finding import Cause
from eureka.doctor.proposals import proposed

LEAD = """# Symptom → cause

```sh
eureka diagnose train.py --lr 3e-4
```

runs your [training script](howto/script.md) as it is, measures on copies of it, and names the cause. The table is for reading:
what people see, and what it often is. The same sight has many causes, and a table cannot tell them apart. Every cause here is
one that `eureka diagnose` knows by name, for a script, a notebook's loop, a Trainer or [a function](howto/diagnose.md).
"""


def symptom_page() -> str:
    """The table, then each cause with the check that tells it."""
    rows = [(symptom.seen, f"[{cause}](#{cause})", symptom.do) for cause, symptom in SYMPTOMS.items()]
    sections = [_section(cause, symptom) for cause, symptom in SYMPTOMS.items()]
    return "\n".join([LEAD, table(["what you see", "cause", "what to do"], rows), *sections])


def _section(cause: Cause, symptom: Symptom) -> str:
    raced = proposed(cause)
    lines = [
        f"## {cause}\n",
        f"{symptom.means}\n",
        f"- **You see**: {symptom.seen[0].lower()}{symptom.seen[1:]}."
        if cause != "healthy"
        else "- **You see**: a curve like any other.",
        f"- **The check that tells**: {checks().get(cause, 'no check finds a fault.')}",
        f"- **Do**: {symptom.do[0].lower()}{symptom.do[1:]}",
    ]
    if raced:
        lines.append(f"- **Worth a race** (`eureka.race`): {', '.join(f'`{name}`' for name in raced)}.")
    return "\n".join(lines) + "\n"


@cache
def checks() -> dict[str, str]:
    """What the check does that names a cause: the first line of its file."""
    found: dict[str, str] = {}
    for path in sorted((Path(doctor.__file__).parent / "checks").glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        said = (ast.get_docstring(tree) or "").splitlines()[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.keyword) and node.arg == "cause" and isinstance(node.value, ast.Constant):
                found.setdefault(str(node.value.value), said)
    return found
