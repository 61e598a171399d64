"""One card a fix: formula, use, settings, what the committed studies say, what it costs, source."""

from __future__ import annotations

import inspect
import json
from functools import cache
from typing import Any

from benchmarks.pages.evidence import evidence
from benchmarks.pages.made import ROOT, described, settings_table, table
from eureka.attention.registry import FIXES
from eureka.registry import Entry

COSTS = ROOT / "results/bench/attention.json"
HEADER = ("tokens", "mask", "mode", "time, × plain fused attention", "peak memory, MB")


def fix_card(entry: Entry) -> str:
    """The page of a fix."""
    parts = [
        f"# {entry.name}",
        f"{entry.summary[0].upper()}{entry.summary[1:]}.",
        "## Formula",
        described(entry.load()),
        "## Use it",
        _use(entry),
        "## Settings",
        settings_table(FIXES, entry),
        "## When it helps, when it hurts",
        evidence(entry.name),
        "## What it costs",
        costs(entry.name),
        f"## Source\n\n{entry.source}. Code: `{entry.target.partition(':')[0]}`.",
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _use(entry: Entry) -> str:
    scheduled = "total_steps" in inspect.signature(entry.load()).parameters
    more = ", total_steps=1000" if scheduled else ""
    return f"""```python
import eureka, torch

model = torch.nn.TransformerEncoderLayer(64, nhead=4, batch_first=True)
with eureka.patch(model, "{entry.name}"{more}) as patched:
    model(torch.randn(8, 16, 64)).sum().backward()  # train as you always do
    print(len(patched.sites), "attention layer")
```

```sh
eureka compare tiles --fix {",".join(dict.fromkeys(["softmax", entry.name]))} --lr 3e-4 --seeds 3
```"""


@cache
def _measured() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(COSTS.read_text(encoding="utf-8"))["rows"]
    return rows


def costs(name: str) -> str:
    """Time and memory beside plain fused attention, as `eureka bench attention --json` printed them."""
    rows = [row for row in _measured() if row["op"] == name]
    if not rows:
        return f"Not measured yet: `eureka bench attention --op {name}` does it on your machine."
    cells = [(f"{row['n']:,}", row["mask"], row["mode"], _ratio(row["time_vs_sdpa"]), _number(row["peak_mb"])) for row in rows]
    lead = (
        "`eureka bench attention --n 197,1024` printed this, on one core that other work shared; on yours the same command tells."
    )
    return f"{lead}\n\n{table(HEADER, cells)}"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"
