"""The remedies by name, in the order of their turns in a race: the promising first, and of those the gentle. The first stay where
the losses do not tell."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from eureka.errors import RequestError, UnknownNameError
from eureka.forks.case import GOES_ALONG, Fork
from eureka.formats import number
from eureka.racing.accumulation import accumulate
from eureka.racing.remedy import Applied, Change, Remedy, nothing

Apply = Callable[[Fork], Applied | None]

RAMP = 500
"""Steps of a heat treatment, from the step at which it begins."""
BATCHES = 4
"""How many batches a larger batch has."""
OWN_RATE = "eureka_own_rate"
"""Where a group of the optimiser has the loop's rate while a step is made at a multiple of it."""
NOISE = 1.0
"""The size of gradient noise, in sizes of each parameter's gradient."""


def operator(name: str, total_steps: int | None = None, **settings: Any) -> Apply:
    """Attention through one of our operators."""

    def apply(fork: Fork) -> Applied:
        from eureka.patching.patch import patch

        before = outputs(fork)
        patched = patch(fork.model, name, settings=settings, total_steps=total_steps)
        if before and alike(before, outputs(fork)):
            patched.undo()
            raise RequestError(f"the model computes what it would compute with {name}.")
        return Applied(patched.undo, [patched])

    return apply


def outputs(fork: Fork) -> list[Tensor]:
    """What the model gives for its inputs, in eval mode; nothing if that cannot be told."""
    from eureka.probes.capture import left_alone, run_alike

    if fork.inputs is None:
        return []
    try:
        with left_alone(fork.model), torch.no_grad():
            found = tree_leaves(run_alike(fork.model, fork.inputs))
    except Exception:  # a model that needs more than its inputs
        return []
    return [one for one in found if isinstance(one, Tensor)]


def alike(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Bit for bit."""
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def rescaled(positions: float | None, logits: float | None) -> Apply:
    """A clear start's rescaling of a model that may have been trained; nothing is made fainter."""

    def apply(fork: Fork) -> Applied:
        from eureka.starts.clear_start import clear_start

        if fork.inputs is None:
            raise RequestError("the loss does not call the model itself, so what it is given is not known.")
        made = clear_start(fork.model, fork.inputs, positions=positions, logits=logits, trained=True)
        loud = min((row.before for row in made.positions), default=0.0)
        sharp = min((sum(row.before) / len(row.before) for row in made.logits), default=0.0)
        if max(loud, sharp) >= 1.0 and (loud >= 1.0 or not made.positions) and (sharp >= 1.0 or not made.logits):
            made.undo()
            what = (
                f"positions are {number(loud)} times the content" if made.positions else f"the logits spread by {number(sharp)}"
            )
            raise RequestError(f"{what} already.")
        return Applied(made.undo)

    return apply


@dataclass(frozen=True)
class Part:
    """A change that a remedy can be applied without, and its words."""

    change: Change
    apply: Apply

    def __call__(self, fork: Fork) -> Applied:
        made = self.apply(fork)
        return Applied(nothing, done=(self.change,)) if made is None else replace(made, done=(self.change,))


def several(*parts: Apply) -> Apply:
    """One after the other."""

    def apply(fork: Fork) -> Applied:
        made: list[Applied] = []
        try:
            made += [one for part in parts if (one := part(fork)) is not None]
        except BaseException:
            _undo(made)
            raise
        return _together(made)

    return apply


def where_possible(*parts: Apply) -> Apply:
    """One after the other; a part that cannot be applied is left out, unless all are."""

    def apply(fork: Fork) -> Applied:
        made: list[Applied] = []
        missing: list[str] = []
        for part in parts:
            try:
                made += [one for one in [part(fork)] if one is not None]
            except RequestError as error:
                missing.append(str(error))
            except BaseException:
                _undo(made)
                raise
        if missing and not made:
            raise RequestError(" ".join(_once(missing)))
        found = _together(made)
        return replace(found, without=_once((*found.without, *missing)))

    return apply


def _once(reasons: Sequence[str]) -> tuple[str, ...]:
    """Of reasons that differ only in what is in brackets, the longest.

    >>> _once(["no attention (4 modules).", "no positions.", "no attention (4 modules, and calls)."])
    ('no attention (4 modules, and calls).', 'no positions.')
    """
    found: dict[str, str] = {}
    for one in reasons:
        start = one.split(" (")[0].rstrip(".")
        found[start] = max(found.get(start, ""), one, key=len)
    return tuple(found.values())


def _together(made: Sequence[Applied]) -> Applied:
    return Applied(
        lambda: _undo(made),
        [counting for one in made for counting in one.counting],
        tuple(reason for one in made for reason in one.without),
        tuple(change for one in made for change in one.done),
    )


def _undo(made: Sequence[Applied]) -> None:
    for one in reversed(made):
        one.undo()


def rate_times(factor: float) -> Apply:
    """Every step at a multiple of the rate that the loop has set, so that a schedule goes on."""

    def apply(fork: Fork) -> Applied:
        def before(optimizer: Optimizer, *_: Any) -> None:
            for group in optimizer.param_groups:
                group.setdefault(OWN_RATE, group["lr"])  # another multiple may be in force
                group["lr"] = group["lr"] * factor

        def after(optimizer: Optimizer, *_: Any) -> None:
            for group in optimizer.param_groups:
                group["lr"] = group.pop(OWN_RATE, group["lr"])

        for hook in (before, after):
            setattr(hook, GOES_ALONG, True)
        handles = [fork.optimizer.register_step_pre_hook(before), fork.optimizer.register_step_post_hook(after)]

        def undo() -> None:
            for handle in handles:
                handle.remove()

        return Applied(undo)

    return apply


@torch.no_grad()
def drawn_anew(fork: Fork) -> Applied:
    """Every weight matrix that is trained is drawn anew at the size it has, and the optimiser forgets its moments.

    A model that has sat on a plateau has learned to do without what it must look at, and leaves it later than a new one does. Its
    own initialisation is not known here. Its sizes are: what is 0 stays 0, and norms and biases stay as they are.
    """
    generators: dict[torch.device, torch.Generator] = {}
    for parameter in fork.model.parameters():
        if parameter.requires_grad and parameter.ndim > 1 and parameter.is_floating_point():
            own = generators.setdefault(parameter.device, torch.Generator(parameter.device).manual_seed(0))
            size = parameter.float().square().mean().sqrt()
            drawn = torch.empty_like(parameter, dtype=torch.float32).normal_(generator=own) * size
            parameter.copy_(torch.where(parameter == 0, torch.zeros_like(drawn), drawn))
    fork.optimizer.state.clear()
    return Applied(lambda: None)


def fresh_optimizer(fork: Fork) -> None:
    """The optimiser forgets its moments."""
    if not any(fork.optimizer.state.values()):
        raise RequestError(f"{type(fork.optimizer).__name__} remembers nothing that could be forgotten.")
    fork.optimizer.state.clear()


def no_decay(fork: Fork) -> None:
    """No weight decay."""
    if not any(group.get("weight_decay") for group in fork.optimizer.param_groups):
        raise RequestError("the optimiser has no weight decay.")
    for group in fork.optimizer.param_groups:
        group["weight_decay"] = 0.0


def gradient_noise(fork: Fork) -> Applied:
    """Normal noise on every gradient, from random numbers of its own, so that dropout stays paired."""
    generators: dict[torch.device, torch.Generator] = {}

    @torch.no_grad()
    def before(optimizer: Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None and not parameter.grad.is_sparse:
                    device = parameter.device
                    own = generators.setdefault(device, torch.Generator(device).manual_seed(0))
                    noise = torch.empty_like(parameter.grad).normal_(generator=own)
                    parameter.grad.add_(noise * parameter.grad.float().square().mean().sqrt().to(noise), alpha=NOISE)

    return Applied(fork.optimizer.register_step_pre_hook(before).remove)


def made_of(
    name: str,
    changes: str,
    *,
    weights: Sequence[Apply] = (),
    lasting: Sequence[Apply] = (),
    factor: float | None = None,
    any_part: bool = False,
    restarts: bool = False,
    code: str = "",
) -> Remedy:
    """A remedy of changes that a checkpoint holds, and of changes that have to be made again when it is loaded.

    factor    of the learning rate
    any_part  parts that cannot be applied are left out
    restarts  it is a new start
    code      how to do it by hand
    """
    join = where_possible if any_part else several
    rate = Change(f"{factor or 1:g} times the learning rate", f"{RATE} *= {factor or 1:g}")
    rates = [Part(rate, rate_times(factor))] if factor is not None else []
    again: list[Apply] = [*([join(*lasting)] if lasting else []), *rates]
    whole = several(join(*weights, *lasting), *rates)
    by_hand = "\n".join(filter(None, [code, rate.code if factor is not None else ""]))
    calms = factor is not None and factor < 1
    return Remedy(name, changes, whole, where_possible(*again) if again else None, by_hand, calms, restarts, factor)


RATE = "for group in optimizer.param_groups: group['lr']"
CLEAR = "eureka.clear_start(model, inputs, logits=None, trained=True)"
PATCH = 'eureka.patch(model, "norm_softmax")'
CLEAR_NEW = "eureka.clear_start(model, inputs, logits=None)"
NEW = "model, optimizer = …  # as at the start of your script: new weights"
LARGE = "learned positions as large as the content"
CLEAR_POSITIONS = Part(Change(LARGE, CLEAR), rescaled(1.0, None))
NEW_POSITIONS = Part(Change(LARGE, CLEAR_NEW), rescaled(1.0, None))
NEW_WEIGHTS = Part(Change("a new start: every weight matrix drawn anew", NEW), drawn_anew)
NORM_SOFTMAX = Part(Change("NormSoftmax", PATCH), operator("norm_softmax"))

CATALOGUE: tuple[Remedy, ...] = (
    made_of("rate_x10", "ten times the learning rate", factor=10),
    made_of(
        "clear_norm_softmax_x10",
        "learned positions as large as the content, NormSoftmax, and ten times the learning rate",
        weights=[CLEAR_POSITIONS],
        lasting=[NORM_SOFTMAX],
        factor=10,
        any_part=True,
        code=f"{CLEAR}\n{PATCH}",
    ),
    made_of(
        "start_over_x10",
        "a new start: every weight matrix drawn anew, learned positions as large as the content, NormSoftmax, ten times the rate",
        weights=[NEW_WEIGHTS, NEW_POSITIONS],
        lasting=[NORM_SOFTMAX],
        factor=10,
        any_part=True,
        restarts=True,
        code=f"{NEW}\n{CLEAR_NEW}\n{PATCH}",
    ),
    made_of(
        "clear_norm_softmax",
        "learned positions as large as the content, and NormSoftmax",
        weights=[CLEAR_POSITIONS],
        lasting=[NORM_SOFTMAX],
        any_part=True,
        code=f"{CLEAR}\n{PATCH}",
    ),
    made_of(
        "start_over",
        "a new start: every weight matrix drawn anew, learned positions as large as the content, and NormSoftmax",
        weights=[NEW_WEIGHTS, NEW_POSITIONS],
        lasting=[NORM_SOFTMAX],
        any_part=True,
        restarts=True,
        code=f"{NEW}\n{CLEAR_NEW}\n{PATCH}",
    ),
    made_of("rate_x3", "three times the learning rate", factor=3),
    made_of("rate_tenth", "a tenth of the learning rate", factor=1 / 10),
    made_of(
        "temperature_third",
        "softmax at a temperature of 1/3",
        lasting=[operator("temperature", temperature=1 / 3)],
        code='eureka.patch(model, "temperature", settings={"temperature": 1 / 3})',
    ),
    made_of(
        "clear_start",
        "learned positions as large as the content, and W_Q and W_K with a spread of 1",
        weights=[rescaled(1.0, 1.0)],
        code="eureka.clear_start(model, inputs, trained=True)",
    ),
    made_of(
        "norm_softmax_var",
        "attention logits divided by the variance of their row",
        lasting=[operator("norm_softmax_var")],
        code='eureka.patch(model, "norm_softmax_var")',
    ),
    made_of(
        "norm_softmax", "attention logits divided by the standard deviation of their row", lasting=[NORM_SOFTMAX], code=PATCH
    ),
    made_of("fresh_optimizer", "the optimiser forgets its moments", weights=[fresh_optimizer], code="optimizer.state.clear()"),
    made_of("clear_positions", "learned positions as large as the content", weights=[CLEAR_POSITIONS], code=CLEAR),
    made_of(
        "temperature_1",
        "softmax at a temperature of 1",
        lasting=[operator("temperature", temperature=1.0)],
        code='eureka.patch(model, "temperature", settings={"temperature": 1.0})',
    ),
    made_of(
        "heat_treatment",
        f"a temperature that rises from 1/3 to √d over {RAMP} steps from here",
        lasting=[operator("heat_treatment", total_steps=RAMP, share=1.0)],
        code=f'eureka.patch(model, "heat_treatment", settings={{"share": 1.0}}, total_steps={RAMP})',
    ),
    made_of(
        "sharper_attention",
        "W_Q and W_K longer, until logits have a spread of 1",
        weights=[rescaled(None, 1.0)],
        code="eureka.clear_start(model, inputs, positions=None, trained=True)",
    ),
    made_of("rate_third", "a third of the learning rate", factor=1 / 3),
    made_of(
        "larger_batch",
        f"{BATCHES} batches to each step, by accumulation",
        lasting=[lambda fork: accumulate(fork, BATCHES)],
    ),
    made_of(
        "no_weight_decay",
        "no weight decay",
        weights=[no_decay],
        code="for group in optimizer.param_groups: group['weight_decay'] = 0.0",
    ),
    made_of("gradient_noise", "noise as large as the gradient", lasting=[gradient_noise]),
)
RATE_TIMES = re.compile(r"rate_x([1-9]\d*)")
"""A name for any multiple of the learning rate."""
DEFAULT = 7
"""So many of them are raced unless others are asked for."""
USUAL_STEP = 1e-3
"""The share of their size by which a step usually changes the weights."""
FAR, FARTHEST = 30, 1000
"""A rate is far too small if its steps would have to be so many times larger; and the largest multiple that is tried unasked."""


def choose(wanted: Sequence[str | Remedy] | str | None) -> list[Remedy]:
    """The remedies that were asked for, by name or as they are; "all" is the whole catalogue, ``rate_x200`` any multiple."""
    if wanted is None:
        return list(CATALOGUE[:DEFAULT])
    if wanted == "all":
        return list(CATALOGUE)
    found = [_choose(one) for one in ([wanted] if isinstance(wanted, str | Remedy) else wanted)]
    if not found:
        raise RequestError("remedies is empty; name one or more, or leave it out.")
    names = [remedy.name for remedy in found]
    if twice := [name for name in names if names.count(name) > 1 or name == "wait"]:
        raise RequestError(f"two forks would be called {twice[0]!r}; give each remedy a name of its own.")
    return found


def larger_rate(step_size: float) -> Remedy | None:
    """The multiple of the rate, to a digit, at which steps have the usual size; None unless they are far smaller.

    >>> [made and made.name for made in map(larger_rate, (5.8e-6, 2e-5, 1e-9, 1e-4, 0.0))]
    ['rate_x200', 'rate_x50', 'rate_x1000', None, None]
    """
    times = min(USUAL_STEP / step_size, FARTHEST) if step_size > 0 else 0.0
    return _choose(f"rate_x{round(times, -math.floor(math.log10(times))):.0f}") if times >= FAR else None


def _choose(one: str | Remedy) -> Remedy:
    known = {remedy.name: remedy for remedy in CATALOGUE}
    if isinstance(one, str):
        if one not in known and (times := RATE_TIMES.fullmatch(one)):
            return made_of(one, f"{float(times[1]):,g} times the learning rate", factor=float(times[1]))
        if one not in known:
            raise UnknownNameError("remedy", one, [*known, "rate_xN"])
        return known[one]
    if missing := [name for name in ("name", "changes", "apply") if not hasattr(one, name)]:
        raise RequestError(f"{one!r} is no remedy: it has no {missing[0]}; pass a name or an eureka.Remedy.")
    return one
