"""Which cause the last diagnosis of a script had, kept in the user's state folder: a second run can say that it is gone."""

from __future__ import annotations

import contextlib
import json

from eureka.errors import WorkError
from eureka.files import write_whole

MAX_SCRIPTS = 500
"""The scripts that were diagnosed longest ago are forgotten."""


def remember(script_key: str, cause: str) -> str | None:
    """Store the cause of a script's diagnosis and return the cause of the one before, if there was one.

    A file that is damaged or cannot be written changes nothing: the diagnosis goes on.
    """
    from platformdirs import user_state_path

    path = user_state_path("eureka", appauthor=False) / "diagnoses.json"
    causes: dict[str, str] = {}
    with contextlib.suppress(OSError, ValueError, RecursionError):
        content = json.loads(path.read_bytes())
        if isinstance(content, dict):
            causes = {key: value for key, value in content.items() if isinstance(value, str)}
    before = causes.pop(script_key, None)  # so that it goes to the end
    causes[script_key] = cause
    latest = dict(list(causes.items())[-MAX_SCRIPTS:])
    with contextlib.suppress(OSError, WorkError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(latest, indent=1).encode(), durable=False)
    return before
