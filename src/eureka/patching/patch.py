"""Swap the attention of a model, reversibly."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from torch import nn

from eureka.attention.operator import Operator, make_operator
from eureka.errors import MissingContextError, RequestError
from eureka.patching.attach import OptimiserSteps, attached, detach_all
from eureka.patching.fitting import check_operator
from eureka.patching.learned import TrainedCheck, say_left_out
from eureka.patching.sites import Found, Layers, Site, find_sites, select_sites
from eureka.patching.slot import LOCK

NEEDED = {"heads": "number of heads", "head_dim": "size of a head", "total_steps": "length of training"}
"""What a site or the caller may not say, in words."""
Fix = str | Operator | type[Operator] | Callable[[Site], "str | Operator"]


def patch(
    model: nn.Module,
    operator: Fix | Mapping[Any, Fix],
    layers: Layers | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    total_steps: int | None = None,
    sites: Sequence[str] = (),
    follow: bool = True,
    check: bool = True,
) -> Patched:
    """Let a model attend through an operator: at all its sites, or at those that `layers` names.

    Args:
        model: any module whose attention can be found; it is changed in place, and the end of the block undoes it
        operator: a name (`eureka fixes` lists them), ``module:Class``, an operator class, an operator, of which every site
            gets a copy, a function of the site, or a mapping from layers to any of these
        layers: an index, a pattern of module names, a function of the site, or several of them
        settings: settings of a named operator or an operator class
        total_steps: the length of training, for operators with a schedule
        follow: let schedules advance with the optimiser that trains the model; otherwise call `advance` of the operators
        sites: names of modules whose forward reaches F.scaled_dot_product_attention in a way that their code does not show
        check: compare the first call at each site, with plain softmax, with the model's own code; if they differ, the patch
            is undone and an error names the site. Compiled calls are not compared

    Parameters of an operator are saved with the model's own. `from_pretrained` makes a model without them: patch that model and
    call its `load_state_dict`. peft freezes what is there when it wraps a model: patch after it. It saves its own parameters
    only: save `model.state_dict()` too. Where parameters would be lost, or are not trained, the logger `eureka` says so.

    A copy of a patched model, as for a running average of its weights, has operators of its own, whose schedules stand still:
    patch the copy, or call their `advance`.

    A query that sees no key gets what it gets in the plain model: zeros where the mask is boolean, the mean of all values where
    finite numbers hide the keys, as in eager attention of Hugging Face. Where plain attention gives NaN it gets zeros.

    >>> from torch import nn
    >>> model = nn.TransformerEncoderLayer(d_model=8, nhead=2)
    >>> with patch(model, "norm_softmax") as patched:
    ...     patched.sites[0].name
    'self_attn'
    """
    if not isinstance(model, nn.Module):
        raise RequestError(f"a torch.nn.Module is patched, not {type(model).__name__}.")
    make = _maker(settings, total_steps)
    with LOCK:
        found = find_sites(model, tuple(sites))
        chosen = _fixes_by_site(model, found, operator, layers)
        _check_nesting(found, [site for site, _ in chosen])
        return Patched(model, [(site, make(fix, site)) for site, fix in chosen], follow=follow, check=check)


def unpatch(model: nn.Module) -> int:
    """Remove every patch from a model, for a copy that no `Patched` belongs to; how many sites were freed."""
    return detach_all(model)


class Patched:
    """A patch in force. Undo it with `undo()` or by leaving the `with` block."""

    def __init__(
        self, model: nn.Module, placed: Sequence[tuple[Site, Operator]], *, follow: bool = True, check: bool = False
    ) -> None:
        self.model, self.sites = model, [site for site, _ in placed]
        self._operators = [operator for _, operator in placed]
        _check_parallel(model, self._operators)
        for site, operator in placed:
            check_operator(site, operator)
        self._attached = attached(model, self.sites, operators=self._operators, undo=_undo_of(self) if check else None)
        self.steps = Steps(model, self._operators, follow=follow)
        self._trained: TrainedCheck | None = None
        if any(True for _ in self.parameters()):
            say_left_out(model)
            self._trained = TrainedCheck(model, self._operators)
        self.active = True

    def undo(self) -> None:
        """Put back what was there; patches made before or after this one stay as they are."""
        with LOCK:
            if self.active:
                self.active = False
                self.steps.close()
                if self._trained is not None:
                    self._trained.close()
                self._attached.close()

    def step(self) -> None:
        """Count a training step. Needed only where schedules cannot follow the optimiser by themselves."""
        self.steps.count()

    def parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the operators, for an optimiser that was made before the patch."""
        for operator in self._operators:
            yield from operator.parameters()

    def state_dict(self) -> dict[str, Any]:
        """The step of the schedules; parameters are in the model's own state."""
        return {"step": self.steps.step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps.set(int(state["step"]))

    def __enter__(self) -> Patched:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.undo()

    def __repr__(self) -> str:
        doubtful = [site for site in self.sites if site.other_way] if self.active else []
        doubt = f", {len(doubtful)} of them only where no branch avoids it ({doubtful[0].other_way})" if doubtful else ""
        return f"Patched({type(self.model).__name__}, {len(self.sites)} sites, {'active' if self.active else 'undone'}{doubt})"

    def __reduce__(self) -> Any:
        raise RequestError(
            "a patch cannot be copied or pickled; copy the model: its operators go along, and their schedules stand still."
        )


def _undo_of(patched: Patched) -> Callable[[], None]:
    """`undo` of a patch, without keeping it alive."""
    held = weakref.ref(patched)

    def undo() -> None:
        alive = held()
        if alive is not None:
            alive.undo()

    return undo


class Steps:
    """Counts the training steps of a model and advances its operators.

    The optimiser that trains the model counts, until the first call of `count`: from then on only `count` does.
    """

    def __init__(self, model: nn.Module, operators: Sequence[Operator], *, follow: bool = True) -> None:
        self.step = self._start = self._by_hand = 0
        self._operators = list(operators)
        scheduled = any(type(operator).advance is not Operator.advance for operator in self._operators)
        self._optimiser = OptimiserSteps(model, self._optimiser_stepped) if scheduled and follow else None
        self.set(0)

    def set(self, step: int) -> None:
        """Go on from this step."""
        self.step = self._start = step
        self._by_hand = 0
        self._advance()

    def count(self) -> None:
        """Count a step by hand; steps that an optimiser counted before the first such call are the same steps."""
        self.close()
        self._by_hand += 1
        self.step = self._start + self._by_hand
        self._advance()

    def close(self) -> None:
        """Follow the optimiser no longer."""
        if self._optimiser is not None:
            self._optimiser.close()

    def _optimiser_stepped(self) -> None:
        self.step += 1
        self._advance()

    def _advance(self) -> None:
        for operator in self._operators:
            operator.advance(self.step)


def _fixes_by_site(model: nn.Module, found: Found, operator: Any, layers: Layers | None) -> list[tuple[Site, Fix]]:
    """Each chosen site with its fix; a mapping may not name a site twice."""
    name = type(model).__name__
    if found.refused and layers is None and not isinstance(operator, Mapping):
        where, why = found.refused[0]
        raise RequestError(f"{where} of {name} {why}; call eureka.attend there, or choose the sites to patch with layers=….")
    if not found.sites:
        raise RequestError(
            f"no attention found in {name} ({found.searched} modules searched for operators, torch.nn.MultiheadAttention,"
            " Hugging Face attention and calls of F.scaled_dot_product_attention)."
        )
    if not isinstance(operator, Mapping):
        return [(site, operator) for site in select_sites(found.sites, layers)]
    if layers is not None:
        raise RequestError("a mapping of operators names its own layers; leave layers=… out.")
    given: dict[int, tuple[Site, Fix]] = {}
    for part, fix in operator.items():
        for site in select_sites(found.sites, part):
            if site.index in given:
                raise RequestError(f"two operators are given for {site.name}.")
            given[site.index] = (site, fix)
    return [given[index] for index in sorted(given)]


def _maker(settings: Mapping[str, Any] | None, total_steps: int | None) -> Callable[[Fix, Site], Operator]:
    """A function that makes the operator of a fix for a site."""

    def make(fix: Fix, site: Site) -> Operator:
        if isinstance(fix, Operator):
            if settings:
                raise RequestError("settings belong to a named operator; this one has its own.")
            return copy.deepcopy(fix)
        if not isinstance(fix, str | type):
            if not callable(fix):
                raise RequestError(f"an operator or the name of one is expected, not {fix!r}.")
            return make(fix(site), site)
        context = {"heads": site.heads, "head_dim": site.head_dim, "total_steps": total_steps}
        known = {key: value for key, value in context.items() if value is not None}
        try:
            return make_operator(fix, settings, **known)
        except MissingContextError as error:
            if not {"heads", "head_dim"}.intersection(error.missing):
                raise
            name = repr(fix) if isinstance(fix, str) else fix.__name__
            given = ", ".join(f"{key}=…" for key in error.missing)
            needed = " and the ".join(NEEDED.get(key, key) for key in error.missing)
            raise RequestError(
                f"{name} needs the {needed}, which {site.name or 'the model'}"
                f" ({type(site.module).__name__}) does not say; pass eureka.make_operator({name}, {given}) in its place."
            ) from None

    return make


def _check_nesting(found: Found, chosen: Sequence[Site]) -> None:
    """Calls inside a module belong to the innermost site, so a patched site must not contain one that is left alone."""
    inside = {id(site.module): site for site in found.sites}
    for outer in chosen:
        if outer.kind not in ("call", "by_hand"):
            continue
        for module in list(outer.module.modules())[1:]:
            inner = inside.get(id(module))
            if inner is not None and (inner.kind == "operator" or inner not in chosen):
                raise RequestError(f"{inner.name} is inside {outer.name}; patch both or the inner one only.")


def _check_parallel(model: nn.Module, operators: Sequence[Operator]) -> None:
    if any(list(operator.parameters()) for operator in operators):
        for module in model.modules():
            if isinstance(module, nn.parallel.DistributedDataParallel):
                raise RequestError("DistributedDataParallel would not see the parameters of the operator; patch before wrapping.")
