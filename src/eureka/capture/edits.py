"""Which line, argument or config key of a training script sets an optimiser setting, proven by running the edited script.

A candidate is only a guess: the same number stands in many places. It works if the script with this edit, run up to its first
optimiser step in a confined process (`eureka.capture.first_step`), has the new value in ``optimizer.param_groups``.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    import yaml

Groups = Sequence[Mapping[str, float]]
"""The numbers in each of an optimiser's param_groups: lr, weight_decay, and under a schedule initial_lr."""

MAX_TRIES = 3
"""Each candidate costs a start of the user's script, whose data may take long to load."""
MAX_SOURCE_BYTES = 1_000_000
"""A larger file is data, not source or a config."""
ROUNDING = 1e-5
"""Edits write six significant digits."""

SYNONYMS = {
    "lr": ("lr", "learning_rate", "learningrate"),
    "weight_decay": ("weight_decay", "weightdecay", "wd"),
    "momentum": ("momentum",),
}
LOOSE_WORDS = {"lr": {"rate", "eta", "alpha"}, "weight_decay": {"decay", "l2", "wd"}, "momentum": {"mom", "beta", "beta1"}}
OTHER_ROLES = {"min", "final", "end", "warmup", "decay", "scheduler", "gamma", "dropout", "drop", "ema"}
"""Words that make `min_lr` or `dropout_rate` less likely to be the setting itself."""
EXACT, PART, LOOSE, UNLIKE = range(4)

OPTIMISER = re.compile(r"adam|sgd|rmsprop|adagrad|adadelta|adafactor|lion|muon|lamb|lars|shampoo|sophia|optim", re.IGNORECASE)
KEY_AND_VALUE = re.compile(r"(?P<key>(?:\+{0,2}|--?)[A-Za-z][\w.\-/@]*)=(?P<value>.+)", re.DOTALL)
CONFIG_SUFFIXES = {".yaml", ".yml", ".json"}


@dataclass(frozen=True)
class Edit:
    """A change of one number in the user's own files or arguments, in the words in which they would make it.

    arguments   all arguments of the script after the edit, if it is one of the arguments
    file, text  the file that it changes and its whole new text, otherwise

    >>> str(Edit("line", "train.py:12", "learning_rate = 3e-4", "learning_rate = 3e-3"))
    'train.py:12: learning_rate = 3e-4 → learning_rate = 3e-3'
    >>> str(Edit("argument", "--lr", "", "--lr 3e-3"))
    'add --lr 3e-3'
    """

    kind: Literal["argument", "line", "key"]
    where: str
    before: str
    after: str
    arguments: tuple[str, ...] | None = field(default=None, repr=False)
    file: Path | None = field(default=None, repr=False)
    text: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        if self.kind == "argument":
            return f"{self.before} → {self.after}" if self.before else f"add {self.after}"
        return f"{self.where}: {self.before} → {self.after}"


def find_edits(
    script: Path,
    arguments: Sequence[str],
    setting: str,
    now: float,
    wanted: float,
    near_line: int | None = None,
    near_file: Path | None = None,
) -> list[Edit]:
    """Return candidates for changing an optimiser setting from `now` to `wanted`, the likeliest first.

    near_line   the line of the optimiser's call, in `near_file` or, without one, in the script
    """
    ranked = [(0, likeness, edit) for likeness, edit in _argument_edits(arguments, setting, now, wanted)]

    tree = _parsed(script)[1]
    near_file = near_file or script
    # Rank 1 is the optimiser's call. A file that is named in the arguments, as nanoGPT's configs are, overrides the script.
    sources = {path.resolve(): (path, 4) for path in _imported_files(tree, script)}
    sources |= {path.resolve(): (path, -2) for path in _named_files(arguments, {".py"}, script)}
    sources |= {path.resolve(): (path, 0) for path in (near_file, script)}
    for resolved, (path, distance) in sources.items():
        near = near_line if resolved == near_file.resolve() else None
        for rank, likeness, edit in _source_edits(path, script, arguments, setting, now, wanted, near):
            if likeness < UNLIKE or not distance:  # in another file only what is named like the setting
                ranked.append((rank + distance, likeness, edit))

    strings = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    for path in dict.fromkeys(_named_files([*arguments, *strings], CONFIG_SUFFIXES, script)):
        ranked += [(2, likeness, edit) for likeness, edit in _key_edits(path, script, setting, now, wanted)]

    # What is not clearly named like the setting comes last, wherever it stands.
    ranked.sort(key=lambda entry: (max(entry[1], PART), *entry[:2]))
    return list(dict.fromkeys(edit for _, _, edit in ranked))


def verify_edit(
    script: Path | None,
    module: str | None,
    arguments: Sequence[str],
    edit: Edit,
    setting: str,
    now: float,
    wanted: float,
    timeout: float,
    unedited: Groups | None = None,
) -> bool:
    """Return whether the edited script has the wanted value in its optimiser at the first step.

    unedited   the param_groups without the edit, as `groups_at_first_step` returns them. With them, a value that a warm-up has
               scaled counts if it changed by wanted / now, and no other setting may change. Without, they are measured if needed
    """
    deadline = time.monotonic() + timeout
    edited = groups_at_first_step(script, module, arguments, setting, timeout, edit)
    if edited is None:
        return False
    if unedited is None:
        values = [_base_value(group, setting) for group in edited]
        has_wanted, has_old = (any(_close(value, number) for value in values) for number in (wanted, now))
        if has_wanted != has_old:  # all changed, or nothing did; otherwise only a comparison tells
            return has_wanted
        unedited = groups_at_first_step(script, module, arguments, setting, deadline - time.monotonic())
    return unedited is not None and _scaled_alone(unedited, edited, setting, now, wanted)


def change_that_works(
    script: Path,
    module: str | None,
    arguments: Sequence[str],
    setting: str,
    now: float,
    wanted: float,
    near_line: int | None = None,
    *,
    near_file: Path | None = None,
    unedited: Groups | None = None,
    seconds: float = 60.0,
) -> Edit | None:
    """Return the first of the likeliest edits that a run of the edited script confirms, or None.

    script    the user's file; of a module that is run by `python -m`, the module's file
    seconds   for all tries together
    """
    deadline = time.monotonic() + seconds
    for edit in find_edits(script, arguments, setting, now, wanted, near_line, near_file)[:MAX_TRIES]:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if verify_edit(script, module, arguments, edit, setting, now, wanted, left, unedited):
            return edit
    return None


def groups_at_first_step(
    script: Path | None,
    module: str | None,
    arguments: Sequence[str],
    setting: str,
    timeout: float,
    edit: Edit | None = None,
) -> list[dict[str, float]] | None:
    """Run the script, edited, up to its first optimiser step and return the numbers in the param_groups; None if it gets to none.

    The process may write nowhere but into a temporary folder, and is killed with all its children after `timeout` seconds.
    """
    if timeout <= 0:
        return None
    with tempfile.TemporaryDirectory(prefix="eureka-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        copies: dict[str, str] = {}
        if edit is not None and edit.file is not None and edit.text is not None:
            copy = scratch / "edited"
            copy.write_text(edit.text, encoding="utf-8")
            copies[str(edit.file)] = str(copy)
        if edit is not None and edit.arguments is not None:
            arguments = edit.arguments
        job = {
            "script": None if script is None else str(script),
            "module": module,
            "arguments": list(arguments),
            "edited": copies,
            "setting": setting,
        }
        (scratch / "job.json").write_text(json.dumps(job), encoding="utf-8")
        offline = {"WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        quick = {"TORCH_COMPILE_DISABLE": "1", "MPLBACKEND": "Agg"}  # a compiler would be a program that writes files
        # -P: the folder of first_step.py must not come into sys.path. -B: no __pycache__ beside the user's files.
        process = subprocess.Popen(
            [sys.executable, "-P", "-B", str(Path(__file__).with_name("first_step.py")), str(scratch / "job.json")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **offline, **quick, "TMPDIR": str(scratch)},
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)  # the workers of a DataLoader as well
            process.wait()
        with contextlib.suppress(OSError, ValueError):
            groups: list[dict[str, float]] = json.loads((scratch / "groups.json").read_text(encoding="utf-8"))
            return groups
    return None


# What the optimiser shows


def _base_value(group: Mapping[str, float], setting: str) -> float:
    """The value that the user set: a schedule keeps the learning rate as initial_lr and scales lr."""
    return group.get("initial_lr", group.get(setting, math.nan)) if setting == "lr" else group.get(setting, math.nan)


def _close(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=ROUNDING)


def _scaled_alone(unedited: Groups, edited: Groups, setting: str, now: float, wanted: float) -> bool:
    """Whether the setting went from `now` to `wanted`, or was scaled as much, and all else stayed."""
    if len(unedited) != len(edited):
        return False
    changed = 0
    for old, new in zip(unedited, edited, strict=True):
        others = old.keys() & new.keys() - {setting}
        if setting == "lr":  # a schedule keeps its own copies
            others -= {"initial_lr", "max_lr", "min_lr"}
        if any(not _close(old[name], new[name]) for name in others):
            return False
        before, after = _base_value(old, setting), _base_value(new, setting)
        is_scaled = _close(after, wanted) if now == 0 else _close(after, before * (wanted / now))
        if is_scaled and not _close(before, after):
            changed += 1
        elif not _close(before, after) or (now != 0 and _close(before, now)):
            return False
    return changed > 0


# Arguments


def _likeness(name: str, setting: str) -> int:
    """How much a name is like the setting's: EXACT, PART, LOOSE or UNLIKE.

    >>> [_likeness(name, "lr") for name in ("--learning-rate", "optim.lr", "baseLr", "min_lr", "rate", "dropout_rate", "eps")]
    [0, 0, 1, 2, 2, 3, 3]
    """
    words = re.findall(r"[a-z]+\d*|[A-Z]+(?![a-z])|[A-Z][a-z]*", name.rpartition(".")[2])
    joined = "_".join(words).lower()
    synonyms = SYNONYMS.get(setting, (setting,))
    if joined in synonyms:
        return EXACT
    for synonym in synonyms:
        if f"_{synonym}_" in f"_{joined}_":
            rest = f"_{joined}_".replace(f"_{synonym}_", "_").split("_")
            return LOOSE if OTHER_ROLES & set(rest) else PART
    own_words = set(joined.split("_"))
    is_loose = own_words & LOOSE_WORDS.get(setting, set()) and not own_words & (OTHER_ROLES - {"decay"})
    return LOOSE if is_loose or set(name.split(".")) & set(synonyms) else UNLIKE  # lr.base


def _argument_edits(arguments: Sequence[str], setting: str, now: float, wanted: float) -> Iterator[tuple[int, Edit]]:
    """Yield the arguments whose value is `now`, in the forms ``--lr 3e-4``, ``--lr=3e-4``, ``optim.lr=3e-4`` and ``3e-4``."""
    for position, argument in enumerate(arguments):
        if match := KEY_AND_VALUE.fullmatch(argument):
            key, value = match["key"], match["value"]
            name, before = key, argument
            after = replacement = f"{key}={_like(value, wanted)}"
        else:
            flag = arguments[position - 1] if position and re.match(r"--?[A-Za-z]", arguments[position - 1]) else ""
            flag = "" if "=" in flag else flag
            value = argument
            name, replacement = flag, _like(argument, wanted)
            before, after = f"{flag} {argument}".strip(), f"{flag} {replacement}".strip()
        if _equals(value, now):
            changed = (*arguments[:position], replacement, *arguments[position + 1 :])
            yield _likeness(name, setting), Edit("argument", name or f"argument {position + 1}", before, after, arguments=changed)


def _equals(text: str, number: float) -> bool:
    try:
        return math.isclose(float(text), number, rel_tol=1e-12)
    except ValueError:
        return False


def _like(text: str, value: float) -> str:
    """Write a number in the manner of another: with an exponent or without.

    >>> _like("3e-4", 0.003), _like("3.0E-04", 0.003), _like("0.001", 0.00001), _like("1e-3", 1.0), _like("0.9", 3 * 0.1)
    ('3e-3', '3e-3', '0.00001', '1e0', '0.3')
    >>> _like("1", 1e-4), _like("1.0", 10.0)
    ('0.0001', '10.0')
    """
    if "e" in text.lower():
        mantissa, exponent = f"{value:.5e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    plain = format(Decimal(f"{value:.6g}"), "f")
    return plain if "." in plain or "." not in text else f"{plain}.0"


# Source files


Named = ast.expr | ast.stmt | ast.keyword | ast.arg


class _Literal(NamedTuple):
    """A number in a source file, and what names it: the keyword, the key, the variable or the option."""

    node: ast.Constant
    name: str
    named_by: tuple[Named, Named] | None  # where the text that shows both begins and ends
    option: str | None  # "--lr" of an add_argument or click.option, whose default it is


def _parsed(path: Path) -> tuple[str, ast.Module]:
    """The text and the syntax tree of a file; both empty if it cannot be read."""
    with contextlib.suppress(OSError, SyntaxError, ValueError, RecursionError):
        if path.stat().st_size <= MAX_SOURCE_BYTES:
            with tokenize.open(path) as file:
                text = file.read()
            return text, ast.parse(text)
    return "", ast.Module([], [])


def _named_files(names: Sequence[str], suffixes: set[str], script: Path) -> Iterator[Path]:
    """Yield the files of some kind that are named in arguments or in strings, seen from here or from the script."""
    for name in names:
        value = name.partition("=")[2] if name.startswith(("-", "+")) and "=" in name else name
        if len(value) < 500 and "\0" not in value and Path(value).suffix in suffixes:
            for path in (Path(value), script.parent / value):
                with contextlib.suppress(OSError):
                    if path.is_file() and path.stat().st_size <= MAX_SOURCE_BYTES:
                        yield path
                        break


def _imported_files(tree: ast.Module, script: Path) -> Iterator[Path]:
    """Yield the user's own files that a script imports: beside it, or from here, one level deep."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules, folders = [alias.name for alias in node.names], [script.parent, Path.cwd()]
        elif isinstance(node, ast.ImportFrom):
            package = f"{node.module}." if node.module else ""
            modules = [*([node.module] if node.module else []), *(f"{package}{alias.name}" for alias in node.names)]
            parents = [script.parent, *script.absolute().parent.parents]
            folders = parents[node.level - 1 : node.level] if node.level else [script.parent, Path.cwd()]
        else:
            continue
        for module in modules:
            for folder in folders:
                stem = folder.joinpath(*module.split("."))
                files = [file for file in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py") if file.is_file()]
                if files:
                    yield files[0]
                    break


def _source_edits(
    path: Path,
    script: Path,
    arguments: Sequence[str],
    setting: str,
    now: float,
    wanted: float,
    near_line: int | None,
) -> Iterator[tuple[int, int, Edit]]:
    """Yield (rank, likeness, edit) for each number of a source file that equals `now`.

    Ranks: 1 in the optimiser's call, 3 an option that the user can add, 4 elsewhere.
    """
    text, tree = _parsed(path)
    lines = text.encode().split(b"\n")  # ast counts columns in bytes
    shown_path = _shown(path, script)

    def edit(line: int, start: int, end: int, new: str, shown: tuple[int, int] | None) -> Edit:
        """An edit of bytes `start` to `end` of a line; the user sees the part `shown` of it, or all."""
        old_line = lines[line - 1]
        new_line = old_line[:start] + new.encode() + old_line[end:]
        first, last = shown or (0, len(old_line))
        before, after = old_line[first:last], new_line[first : last + len(new_line) - len(old_line)]
        changed = b"\n".join([*lines[: line - 1], new_line, *lines[line:]]).decode()
        return Edit("line", f"{shown_path}:{line}", before.decode().strip(), after.decode().strip(), file=path, text=changed)

    in_call: set[int] = set()  # ids of the numbers that the optimiser's call passes
    for call in ast.walk(tree):
        if near_line is None or not isinstance(call, ast.Call) or not call.lineno <= near_line <= (call.end_lineno or 0):
            continue
        in_call |= {id(keyword.value) for keyword in call.keywords if keyword.arg == setting}
        if not OPTIMISER.search(ast.unparse(call.func).rpartition(".")[2]):
            continue
        in_call |= {id(argument) for argument in call.args}
        passed = [*call.args, *(keyword.value for keyword in call.keywords)]
        is_certain = not any(isinstance(argument, ast.Starred) for argument in call.args)
        is_certain &= not any(keyword.arg in (setting, None) for keyword in call.keywords)
        # The second place of every optimiser is the learning rate.
        if not passed or not is_certain or (setting == "lr" and len(call.args) > 1):
            continue
        # The value is PyTorch's default, which stands nowhere: add the keyword behind the last one.
        line, end = max((node.end_lineno or 0, node.end_col_offset or 0) for node in passed)
        rest = lines[line - 1][end : call.end_col_offset if call.end_lineno == line else None]
        if (line, end) != (call.end_lineno, call.end_col_offset) and rest.strip() in (b")", b",)", b", )", b",", b""):
            style = "1e-3" if wanted < 0.01 else "0.1"
            shown = (call.col_offset, end + len(rest)) if call.lineno == line else None
            yield 1, EXACT, edit(line, end, end, f", {setting}={_like(style, wanted)}", shown)

    given = {argument.partition("=")[0] for argument in arguments}
    for literal in _literals(tree, now):
        line, start, end = literal.node.lineno, literal.node.col_offset, literal.node.end_col_offset or 0
        is_in_call = id(literal.node) in in_call
        likeness = EXACT if is_in_call else _likeness(literal.name, setting)
        if (now == 0 and likeness > LOOSE) or literal.option in given:  # zeros stand everywhere; a default that is not used
            continue
        new = _like(lines[line - 1][start:end].decode(), wanted)
        if literal.option is not None:
            added = Edit("argument", literal.option, "", f"{literal.option} {new}", (*arguments, literal.option, new))
            yield 3, likeness, added
        opening, closing = literal.named_by or (literal.node, literal.node)
        is_one_line = literal.named_by is not None and opening.lineno == closing.end_lineno == line
        shown = (opening.col_offset, closing.end_col_offset or 0) if is_one_line else None
        yield 1 if is_in_call else 4, likeness, edit(line, start, end, new, shown)


def _literals(tree: ast.Module, now: float) -> Iterator[_Literal]:
    """Yield the numbers of a module that equal `now`, each with the name that stands nearest to it."""

    def visit(node: ast.AST, name: str, named_by: tuple[Named, Named] | None, option: str | None) -> Iterator[_Literal]:
        match node:
            case ast.Constant(value=bool()):
                return
            case ast.Constant(value=int() | float() as value):
                if math.isclose(value, now, rel_tol=1e-12):
                    yield _Literal(node, name, named_by, option)
            case ast.UnaryOp(op=ast.USub()):
                return
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)) if len(targets) == len(values):
                for target, element in zip(targets, values, strict=True):
                    yield from visit(element, _name_of(target), (node, node), None)
            case ast.Assign(targets=[*_, target], value=assigned):
                yield from visit(assigned, _name_of(target), (node, assigned), None)
            case ast.AnnAssign(target=target, value=ast.expr() as assigned) | ast.NamedExpr(target=target, value=assigned):
                yield from visit(assigned, _name_of(target), (node, assigned), None)
            case ast.Dict(keys=keys, values=values):
                for key, element in zip(keys, values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield from visit(element, key.value, (key, element), None)
                    else:
                        yield from visit(element, name, named_by, None)
            case ast.arguments():
                positional = [*node.posonlyargs, *node.args]
                pairs = [*zip(reversed(positional), reversed(node.defaults), strict=False)]
                pairs += [
                    (argument, default) for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True) if default
                ]
                for argument, default in pairs:
                    yield from visit(default, argument.arg, (argument, default), None)
            case ast.Call():
                strings = [part.value for part in node.args if isinstance(part, ast.Constant) and isinstance(part.value, str)]
                options = sorted((text for text in strings if text.startswith("-")), key=lambda text: not text.startswith("--"))
                if _name_of(node.func).startswith("DEFINE_") and strings:  # absl's flags
                    options = [f"--{strings[0]}"]
                own_name = options[0] if options else strings[0] if strings else name  # cfg.get("lr", 3e-4)
                own_option = options[0] if options else None
                yield from visit(node.func, name, named_by, None)
                for part in node.args:
                    yield from visit(part, own_name, named_by, own_option)
                for keyword in node.keywords:
                    is_default = keyword.arg in ("default", None)
                    called = own_name if is_default else str(keyword.arg)
                    yield from visit(keyword.value, called, (keyword, keyword), own_option if is_default else None)
            case _:
                is_statement = isinstance(node, ast.stmt)
                for child in ast.iter_child_nodes(node):
                    yield from visit(child, *(("", None, None) if is_statement else (name, named_by, option)))

    with contextlib.suppress(RecursionError):
        yield from visit(tree, "", None, None)


def _name_of(node: ast.expr) -> str:
    """The last name of a target: of ``self.lr`` and of ``config["lr"]`` lr."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str() as name)):
            return name
    return ""


def _shown(path: Path, script: Path) -> str:
    """A path as the user would type it: from here, or from the script's folder."""
    for folder in (Path.cwd(), script.absolute().parent):
        if path.absolute().is_relative_to(folder):
            return str(path.absolute().relative_to(folder))
    return str(path)


# Config files


def _key_edits(path: Path, script: Path, setting: str, now: float, wanted: float) -> Iterator[tuple[int, Edit]]:
    """Yield the keys of a YAML or JSON file whose value is `now`."""
    import yaml

    try:
        text = path.read_bytes().decode()
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return

    def scalars(node: yaml.Node | None, keys: tuple[str, ...]) -> Iterator[tuple[str, yaml.Node]]:
        if isinstance(node, yaml.ScalarNode):
            yield ".".join(keys), node
        elif isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                yield from scalars(value, (*keys, str(key.value)))
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                yield from scalars(value, (*keys, str(index)))

    seen: set[int] = set()
    for key, node in scalars(root, ()):
        start, end = node.start_mark.index, node.end_mark.index
        if start in seen or not _equals(text[start:end], now) or (now == 0 and _likeness(key, setting) > LOOSE):
            continue
        seen.add(start)  # an alias leads to the same place again
        new = _like(text[start:end], wanted)
        changed = text[:start] + new + text[end:]
        where = f"{_shown(path, script)}: {key}"
        yield _likeness(key, setting), Edit("key", where, text[start:end], new, file=path, text=changed)
