"""The tasks by name."""

from __future__ import annotations

from eureka.registry import Entry, Registry

TASKS = Registry(
    "task",
    [
        Entry(
            name="tiles",
            target="eureka.tasks.tiles:Tiles",
            summary="synthetic noisy tiles: indicators tell which target to classify; any number of decisions",
            source="the rule of Hoffmann et al. 2024",
        ),
        Entry(
            name="digits",
            target="eureka.tasks.digits:Digits",
            summary="the same rule on real 8×8 handwritten digits; nothing to download",
            source="the rule of Hoffmann et al. 2024; pictures of Alpaydin & Kaynak 1998",
        ),
    ],
)
