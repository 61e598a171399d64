"""Write the verdicts as a page: how many architectures are served, and what the others are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from benchmarks.coverage.judge import Verdict

JUDGED = ("exact", "shown", "refused", "late", "wrong")
"""Kinds of verdicts about a patch, the best first."""
MEANING = {
    "exact": "with plain softmax all outputs and gradients are those of the unpatched model; undone, every bit is",
    "shown": "as exact, but for something that the patch says",
    "refused": "`eureka.patch` refuses in one sentence, when it is called",
    "late": "refused only when the model runs",
    "wrong": "another result, and nothing is said",
}


def worst_kinds(verdicts: Sequence[Verdict], judged: Sequence[str]) -> tuple[dict[str, str], dict[str, list[Verdict]]]:
    """The verdict of each architecture, and those of its classes."""
    grouped: dict[str, list[Verdict]] = {}
    for one in verdicts:
        grouped.setdefault(one.architecture, []).append(one)
    return {name: of_architecture(found, judged) for name, found in sorted(grouped.items())}, grouped


def of_architecture(verdicts: Sequence[Verdict], judged: Sequence[str] = JUDGED) -> str:
    """The worst verdict of its classes; `without` if none attends, `unrun` if none could be built and run."""
    kinds = {one.kind for one in verdicts}
    for kind in reversed(judged):
        if kind in kinds:
            return kind
    return "without" if "without" in kinds else "unrun"


def page(verdicts: Sequence[Verdict], version: str, of: int) -> str:
    """The whole page, as Markdown; `of` is the number of architectures that transformers has."""
    kinds, grouped = worst_kinds(verdicts, JUDGED)
    judged = Counter(kind for kind in kinds.values() if kind in JUDGED)
    classes = Counter(one.kind for one in verdicts if one.kind in JUDGED)
    lines = [
        "# Which models can be patched",
        "",
        f"Written by `python -m benchmarks.coverage --page docs/coverage.md` with transformers {version}: {len(kinds)} of its",
        f"{of} architectures, {len(verdicts)} classes (with `--first` one class of an architecture is enough). Models are built",
        "from their own configs, made small; no weights are downloaded. Each is patched with plain `softmax`, run forward and",
        "backward, compared with itself, and undone. What cannot be built or run this way (it needs another package, or inputs",
        "that nobody here guesses) is listed last, with the reason. Some need settings or inputs that no rule finds",
        "(`benchmarks/coverage/known.py`). With `--first` a run takes about forty minutes of one core; it goes on where it",
        "was broken off.",
        "",
        _sum(kinds, of),
        "",
        "| verdict | architectures | classes | meaning |",
        "|---|---|---|---|",
    ]
    lines += [f"| {kind} | {judged[kind]} | {classes[kind]} | {MEANING[kind]} |" for kind in JUDGED]
    lines += [
        "",
        *section("No attention was found, and a patch is refused", [name for name, kind in kinds.items() if kind == "without"]),
    ]
    lines += section("Exact", [name for name, kind in kinds.items() if kind == "exact"])
    for kind in JUDGED[1:]:
        told = [one for one in verdicts if one.kind == kind and kinds[one.architecture] == kind]
        if told:
            lines += [f"## {kind.capitalize()}", "", "| architecture | class | why |", "|---|---|---|"]
            lines += [f"| {one.architecture} | {one.model} | {one.detail.replace('|', '/')} |" for one in told] + [""]
    lines += unrun_section({name: grouped[name] for name, kind in kinds.items() if kind == "unrun"})
    return "\n".join(lines).rstrip() + "\n"


def _sum(kinds: Mapping[str, str], of: int) -> str:
    """What became of all architectures, in one sentence."""
    count = Counter(kinds.values())
    failed = sum(count[kind] for kind in JUDGED[1:])
    return (
        f"Of all {of} architectures, {count['exact']} are served exactly, {count['without']} have no attention that could be"
        f" patched, {failed} are refused or fail, {count['unrun']} could not be built or run, {of - len(kinds)} were not tried."
    )


def unrun_section(verdicts: Mapping[str, Sequence[Verdict]]) -> list[str]:
    """What could not be built or run, with the first reason."""
    if not verdicts:
        return []
    lines = [f"## Not built or not run: {len(verdicts)}", "", "| architecture | why |", "|---|---|"]
    return lines + [f"| {name} | {_brief(found[0].detail)} |" for name, found in verdicts.items()]


def _brief(reason: str) -> str:
    """A reason that fits into a cell of the table."""
    plain = " ".join(reason.split()).replace("|", "/")
    return plain if len(plain) <= 120 else f"{plain[:120]}…"


def section(title: str, names: Sequence[str]) -> list[str]:
    """Names under a title; nothing if there are none."""
    return [f"## {title}: {len(names)}", "", ", ".join(names) + ".", ""] if names else []
