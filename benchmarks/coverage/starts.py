"""Give small models a clear start, look at what it did, undo it; and write the verdicts as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import eureka
from benchmarks.coverage.judge import Verdict, built
from benchmarks.coverage.page import section, unrun_section, worst_kinds
from eureka.errors import EurekaError

JUDGED = ("started", "partly", "refused", "wrong")
"""Kinds of verdicts about a start, the best first."""
MEANING = {
    "started": "learned positions, if any, are as large as the content, and every attention that ran has the spread asked for",
    "partly": "something was left alone, or could not be checked, and a note says what and why",
    "refused": "nothing could be rescaled; one sentence says why, and every bit is as it was",
    "wrong": "an error of another kind, a spread that is off, a second call that changes something, or an undo that is not exact",
}
WITHIN = 0.01


def judge_start(architecture: str, cls: Any) -> Verdict:
    """Build, run, start, start again, undo."""

    def verdict(kind: str, detail: object = "", sites: int = 0) -> Verdict:
        return Verdict(architecture, cls.__name__, kind, " ".join(str(detail).split())[:300], sites)

    try:
        model, inputs, plain = built(cls)
    except Exception as error:
        return verdict("unbuilt", error)
    if inputs is None:
        return verdict("unrun", plain)
    model.train()
    before = state(model)
    try:
        start = eureka.clear_start(model, inputs)
    except EurekaError as error:
        if other := differing(model, before):
            return verdict("wrong", f"refused, and changed {other[0]}")
        return verdict("without" if "no attention found" in str(error) else "refused", error)
    except Exception as error:
        return verdict("wrong", repr(error))
    wrong = _wrong(model, inputs, start, before)
    if wrong is not None:
        return verdict("wrong", wrong, len(start.logits))
    left = [note for note in start.notes if " as they were: " in note or "could not be checked" in note]
    return verdict("partly" if left else "started", " ".join(left), len(start.logits))


def _wrong(model: Any, inputs: Any, start: eureka.ClearStart, before: dict[str, Tensor]) -> str | None:
    """What a start did that it must not; afterwards it is undone."""
    asked = [row.after for row in start.positions] + [spread for row in start.logits for spread in row.after]
    if far := [one for one in asked if not abs(one - 1) <= WITHIN]:
        return f"{far[0]} instead of 1"
    if not all(module.training for module in model.modules()):
        return "a module is in eval mode"
    once = state(model)
    again = eureka.clear_start(model, inputs, trained=True)
    if other := differing(model, once):
        return f"a second call changes {other[0]}"
    again.undo()
    start.undo()
    other = differing(model, before)
    return f"undone, {other[0]} is another" if other else None


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def differing(model: nn.Module, before: dict[str, Tensor]) -> list[str]:
    """The parameters and buffers with another bit than before."""
    return [name for name, tensor in state(model).items() if not torch.equal(tensor.nan_to_num(), before[name].nan_to_num())]


def page(verdicts: Sequence[Verdict], version: str, of: int) -> str:
    """The whole page, as Markdown; `of` is the number of architectures that transformers has."""
    kinds, grouped = worst_kinds(verdicts, JUDGED)
    count = Counter(kinds.values())
    lines = [
        "# Which models get a clear start",
        "",
        "Written by `python -m benchmarks.coverage --starts --first --json FILE --page docs/coverage_starts.md` with",
        f"transformers {version}: {len(kinds)} of its {of} architectures. Models are built from their own configs,",
        "made small; no weights are downloaded. Each gets `eureka.clear_start(model, batch)` on random inputs, a second",
        "one that must change nothing, and is undone: every bit must be as it was. An attention that did not run on these",
        "inputs (that of pictures, where a model was given text alone) does not count. The command goes on where it was",
        "broken off.",
        "",
        f"Of {sum(count[kind] for kind in JUDGED)} that attend and run, {count['started']} start as asked, {count['partly']} in"
        f" part, {count['refused']} are refused, {count['wrong']} go wrong; {count['without']} have no attention,"
        f" {count['unrun']} could not be built or run, {of - len(kinds)} were not tried.",
        "",
        "| verdict | architectures | meaning |",
        "|---|---|---|",
        *(f"| {kind} | {count[kind]} | {MEANING[kind]} |" for kind in JUDGED),
        "",
        *section("Started", [name for name, kind in kinds.items() if kind == "started"]),
    ]
    for kind in JUDGED[1:]:
        told = [one for one in verdicts if one.kind == kind and kinds[one.architecture] == kind]
        if told:
            lines += [f"## {kind.capitalize()}", "", "| architecture | class | why |", "|---|---|---|"]
            lines += [f"| {one.architecture} | {one.model} | {one.detail.replace('|', '/')} |" for one in told] + [""]
    lines += section("Without attention", [name for name, kind in kinds.items() if kind == "without"])
    lines += unrun_section({name: grouped[name] for name, kind in kinds.items() if kind == "unrun"})
    return "\n".join(lines).rstrip() + "\n"
