"""Patch a small model with plain softmax, and compare it with itself."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import eureka
from benchmarks.coverage.inputs import candidates
from benchmarks.coverage.known import SETTINGS, with_settings
from benchmarks.coverage.small import Size, small
from eureka.errors import EurekaError
from eureka.patching.attach import attached, find_sites

LARGEST = 80_000_000
"""Parameters; a model that is larger even when it is made small is left out."""
PATIENCE = 1.0
"""Seconds of processor time in which inputs are sought that a model takes, for each variation."""
SIZES = (
    Size(8),
    Size(2, pictures=False),
    Size(8, by_heads=True),
    Size(16, by_heads=True, layers=8),
    Size(8, layers=64),
    Size(32),
    Size(1),
    Size(1, pictures=False, layers=64),
)
"""The first in which a model builds and runs is taken."""
IN_SINGLE = ("Double", "double", "Float", "dtype", "overflow", "finite")
"""Words of an error after which a model is tried in single precision."""
TIMES = 2
"""How often a model is asked whether it gives the same bits; some convolutions sum in another order now and then."""
CLOSE = {torch.float64: 1e-5, torch.float32: 1e-3}
"""Relative to the largest number of a tensor; many models take their softmax in single precision."""


@dataclass(frozen=True)
class Verdict:
    """What became of one class."""

    architecture: str
    model: str
    kind: str
    """exact, shown, refused, late, wrong, without (no attention), or why it was left out: unbuilt, unrun, random."""
    detail: str = ""
    sites: int = 0


def architectures() -> list[str]:
    """The folders of transformers that hold models."""
    import transformers

    folder = Path(transformers.__file__).parent / "models"
    return sorted({path.parent.name for path in folder.glob("*/modeling_*.py")} - {"auto"})


def classes(architecture: str) -> Iterator[Any]:
    """The public model classes of an architecture."""
    import transformers

    folder = Path(transformers.__file__).parent / "models" / architecture
    for path in sorted(folder.glob("modeling_*.py")):
        module = importlib.import_module(f"transformers.models.{architecture}.{path.stem}")
        for name in getattr(module, "__all__", ()):
            found = getattr(module, name)
            own = (
                inspect.isclass(found) and issubclass(found, transformers.PreTrainedModel) and found.__module__ == module.__name__
            )
            if own and not name.endswith("PreTrainedModel") and found.config_class is not None:
                yield found


def judge(architecture: str, cls: Any) -> Verdict:
    """Build, run, patch, compare, undo; in double precision, and where that fails in single: some models mix the two."""
    verdict = _judge(architecture, cls, (torch.float64, torch.float32))
    if verdict.kind in ("late", "wrong"):
        again = _judge(architecture, cls, (torch.float32,))
        return again if again.kind == "exact" else verdict
    return verdict


def _judge(architecture: str, cls: Any, types: tuple[torch.dtype, ...]) -> Verdict:
    def verdict(kind: str, detail: object = "", sites: int = 0) -> Verdict:
        return Verdict(architecture, cls.__name__, kind, " ".join(str(detail).split())[:300], sites)

    try:
        model, inputs, plain = built(cls, types)
    except Exception as error:
        return verdict("unbuilt", error)
    if inputs is None:
        return verdict("unrun", plain)
    try:
        patched = eureka.patch(model, "softmax")
    except EurekaError as error:
        return verdict("without" if "no attention found" in str(error) else "refused", error)
    except Exception as error:
        return verdict("late", repr(error))
    try:
        found = results(model, inputs)
    except Exception as error:
        patched.undo()
        try:
            results(model, inputs)
        except Exception as own:
            return verdict("unrun", own)  # a second time it does not run without a patch either
        return verdict("late", repr(error), len(patched.sites))
    patched.undo()
    again = results(model, inputs)
    if not _same(plain, again):
        if _repeats(cls, types):
            return verdict("wrong", "the undone model is another one")
        return verdict("random", "its results are not always the same, without a patch")
    if worst := _difference(plain, found):
        notes = getattr(patched, "notes", ())
        return verdict("shown" if notes else "wrong", worst, len(patched.sites))
    if not seen_sites(model, inputs):
        return verdict("unrun", "none of its sites attended", len(patched.sites))
    return verdict("exact", "", len(patched.sites))


def _repeats(cls: Any, types: tuple[torch.dtype, ...]) -> bool:
    """Whether a class that was never patched gives the same bits whenever it is asked."""
    model, inputs, plain = built(cls, types)
    return inputs is not None and all(_same(plain, results(model, inputs)) for _ in range(TIMES))


def built(cls: Any, types: tuple[torch.dtype, ...] = (torch.float64, torch.float32)) -> tuple[Any, dict[str, Any] | None, Any]:
    """A small model, inputs that it takes, and what it gives; or no inputs, and the first error.

    Where the first one that runs does not attend, a deeper one is looked at: attention may be in later layers only.
    """
    first: Exception | None = None
    model, failed, without = None, None, None
    for size in SIZES:
        if without is not None and size.layers <= SIZES[0].layers:
            continue
        try:
            model = make(cls, size)
        except Exception as error:
            first = first or error
            continue
        found = _run(model, types)
        if isinstance(found, Exception):
            failed = failed or found
        elif _attends(model):
            return (model, *found)
        else:
            without = without or (model, *found)
    if without is not None:
        return without
    if model is not None:
        return model, None, repr(failed)
    assert first is not None
    raise first


def _attends(model: Any) -> bool:
    found = find_sites(model)
    return bool(found.sites or found.refused)


def _run(model: Any, types: tuple[torch.dtype, ...]) -> tuple[dict[str, Any], list[Tensor]] | Exception:
    """The first inputs that a model takes, and its results; or the first error."""
    failed: Exception | None = None
    started = time.process_time()
    for inputs in candidates(model):
        for dtype in types:
            try:
                given = {name: value.to(dtype) if _is_float(value) else value for name, value in inputs.items()}
                return given, results(model.to(dtype), given)
            except Exception as error:
                failed = failed or error
                if not any(word in str(error) for word in IN_SINGLE):
                    break
        if time.process_time() - started > PATIENCE:
            break
    return failed or ValueError("it takes no inputs")


def make(cls: Any, size: Size) -> Any:
    known = SETTINGS.get(cls.__module__.split(".")[-2], {})
    settings = with_settings(small(cls.config_class().to_dict(), size), known)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in cls(cls.config_class.from_dict(settings)).parameters())
    if count > LARGEST:
        raise ValueError(f"{count:,} parameters")
    torch.manual_seed(0)
    model = cls(cls.config_class.from_dict(settings)).double().eval()
    with contextlib.suppress(Exception):  # only some have experts
        model.set_experts_implementation("eager")  # the other one takes no double precision
    return model


def results(model: Any, inputs: Mapping[str, Any]) -> list[Tensor]:
    """All outputs, and the gradient of a fixed combination of them by every parameter."""
    model.zero_grad()
    model.train().eval()  # some keep what they computed while they do not train
    torch.manual_seed(5)
    outputs = [one for one in tensors(model(**inputs)) if one.is_floating_point()]
    if not any(bool(one.isfinite().any()) for one in outputs):
        raise ValueError("no output is finite")
    generator = torch.Generator().manual_seed(7)
    total: Any = 0.0
    for one in outputs:
        if one.requires_grad:
            total = total + (one.nan_to_num(0.0, 0.0, 0.0) * torch.randn(one.shape, generator=generator)).sum()
    if isinstance(total, Tensor):
        total.backward()  # type: ignore[no-untyped-call]
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    return [one.detach().clone() for one in outputs] + gradients


def tensors(output: Any) -> Iterator[Tensor]:
    """Every tensor of an output, in order; not those of caches."""
    if isinstance(output, Tensor):
        yield output
    elif isinstance(output, Mapping):
        for key, value in output.items():
            if "past" not in key and "attentions" not in key:
                yield from tensors(value)
    elif isinstance(output, (tuple, list)):
        for value in output:
            yield from tensors(value)


def _is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def _same(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(one, other, strict=True))


def _difference(wanted: list[Tensor], found: list[Tensor]) -> str:
    """Where the results differ most; empty if they do not."""
    if [one.shape for one in wanted] != [one.shape for one in found]:
        return f"{len(wanted)} results, {len(found)} when patched, or of other shapes"
    largest = max((one.abs().nan_to_num(0.0, 0.0, 0.0).max().item() for one in wanted if one.numel()), default=0.0)
    worst = ""
    for number, (one, other) in enumerate(zip(wanted, found, strict=True)):
        if not one.numel():
            continue
        off = (one - other).nan_to_num(0.0, 0.0, 0.0).abs().max().item()
        if off > CLOSE.get(one.dtype, 0.05) * max(one.abs().nan_to_num(0.0, 0.0, 0.0).max().item(), 1e-3 * largest) + 1e-12:
            worst = worst or f"result {number} of {len(wanted)} is off by {off:.2g} of {one.abs().max().item():.2g}"
    return worst


def seen_sites(model: Any, inputs: Mapping[str, Any]) -> list[str]:
    """The sites that attend in a pass."""
    seen: list[str] = []
    sites = find_sites(model).sites
    with attached(model, sites, observer=lambda site, call: seen.append(site.name)), torch.no_grad():
        model(**inputs)
    return seen
