"""The public names, each with its docstring: directives that mkdocstrings fills."""

from __future__ import annotations

import importlib

import eureka

GROUPS = {
    "Read a log": ("detect", "EurekaMoment", "find_plateaus", "read_log", "read_curve", "OnlineDetector"),
    "Find out why": ("diagnose", "attach", "Setup", "Diagnosis", "Finding", "race", "Race", "Remedy"),
    "Fix": ("patch", "clear_start", "ClearStart", "attend", "make_operator", "Operator"),
    "Look inside": ("AttentionProbe", "position_share", "attention_to", "induction_scores", "linear_probes"),
    "Train and report": ("recipe", "run_config", "RunConfig", "run", "RunResult", "write_report"),
    "Errors": ("EurekaError", "RequestError"),
}
BESIDES = {
    "Callbacks and loops": (
        "eureka.integrations.hugging_face.HuggingFaceCallback",
        "eureka.integrations.lightning.LightningCallback",
        "eureka.integrations.monitor.Monitor",
    ),
    "Check a part of your own": ("eureka.testing.check_operator", "eureka.testing.check_task", "eureka.testing.check_model"),
}


def api_page() -> str:
    """Every public name, by what it is for."""
    parts = ["# Python", "`import eureka` loads nothing heavy; a name is loaded when it is first used."]
    for title, names in GROUPS.items():
        parts += [f"## {title}", *(_directive(_place(name), f"eureka.{name}") for name in names)]
    for title, places in BESIDES.items():
        parts += [f"## {title}", *(_directive(place, place.rpartition(".")[2]) for place in places)]
    return "\n\n".join(parts) + "\n"


def _place(name: str) -> str:
    """Where a public name is defined, as a path that can be read without running it."""
    found = getattr(eureka, name)
    module = importlib.import_module(found.__module__)
    assert getattr(module, name) is found
    return f"{found.__module__}.{name}"


def _directive(place: str, heading: str) -> str:
    return f"::: {place}\n    options:\n      heading: {heading}\n      toc_label: {heading}"
