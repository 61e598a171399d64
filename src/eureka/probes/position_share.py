"""Position share: how much of what the first attention of a model works with is position, and how much is content.

Of its input, where positions P are added to the content C before it, with rms over samples, tokens and features (without the
tokens that a keyword `attention_mask` hides):

    ratio = rms(P) / rms(C),   share of the input = rms(P)² / (rms(P)² + rms(C)²)

That is not defined where positions act inside the attention (rotary, ALiBi, relative). The share of the logits is defined in
`eureka.probes.logits_share`.

A pass that somebody makes anyway is watched: no second pass, and no mode, buffer or random number is touched. The outermost
module that is called and holds an attention begins to follow the pass, and the first attention call ends it. Until then the
pass runs as it is written, also if it was compiled.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode

from eureka.errors import RequestError
from eureka.patching.attach import AttentionCall, Site, attached
from eureka.probes.additions import Addition
from eureka.probes.capture import batch_statistics, left_alone, run_model, sites_of
from eureka.probes.follow import Follow, Sum
from eureka.probes.logits_share import are_alike, logits_share
from eureka.probes.padding import Padding, padding_of
from eureka.probes.position_kinds import why_none
from eureka.probes.positions import Search, sums_of
from eureka.runs import PositionShare
from eureka.uncompiled import uncompiled

ALIKE = "the batch has no two samples that differ, which would tell positions from content."
UNSEEN = "what the model does before its first attention could not be followed."


@torch.no_grad()
def position_share(model: nn.Module, inputs: Any) -> PositionShare:
    """How much of the input and of the logits of a model's first attention is position; the model stays as it is.

    It runs in eval mode; batch norms see the statistics of the batch, as in training and in `clear_start`.

    Args:
        model: the one to look at
        inputs: one batch of samples that differ, as the model takes it (a mapping is passed by keyword)

    >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> place = torch.randn(6, 8)
    >>> share = position_share(nn.Sequential(layer), place + 0.01 * torch.randn(16, 6, 8))
    >>> share.site, round(share.of_logits, 1)
    ('0.self_attn', 1.0)
    """
    sites = sites_of(model, None)
    first = FirstAttention(model, sites, lambda: True)
    with left_alone(model), batch_statistics(model), attached(model, sites, observer=first.observe), first.watching():
        run_model(model, inputs)
    if first.share is None:
        raise RequestError(
            f"no attention call of {type(model).__name__} was seen on these inputs: it was not reached, its code attends in a"
            " way that could not be followed, or the model runs compiled (pass it without torch.compile)."
        )
    if first.share.note == ALIKE:
        raise RequestError(f"{ALIKE[:-1]}; give two or more.")
    return first.share


class FirstAttention:
    """Measures the position share of one pass, while it is attached.

    wanted   whether a pass that begins now is to be watched
    samples  how many samples count for the logits; None for all
    """

    def __init__(self, model: nn.Module, sites: Sequence[Site], wanted: Callable[[], bool], samples: int | None = None) -> None:
        self.model, self.wanted, self.samples = model, wanted, samples
        self.share: PositionShare | None = None
        """What was measured since it was attached."""
        names = {".".join(path[:n]) for path in (site.name.split(".") for site in sites) for n in range(len(path) + 1)}
        self._around = [module for name, module in model.named_modules() if name in names]
        """The modules that hold a site, and the sites."""
        self._hooks = ExitStack()
        self._watch: Watch | None = None
        self._entered = ExitStack()
        """What is left when the watch ends."""
        self._padding = Padding()
        self._outermost: nn.Module | None = None

    def attach(self) -> None:
        """Wait for the next pass; what was measured before is forgotten."""
        self.detach()
        self.share = self._watch = self._outermost = None
        for module in self._around:
            self._hooks.callback(module.register_forward_pre_hook(Hook(self._begin), with_kwargs=True).remove)
            self._hooks.callback(module.register_forward_hook(Hook(self._end), always_call=True).remove)

    def detach(self) -> None:
        self._stop()
        self._hooks.close()

    @contextmanager
    def watching(self) -> Iterator[None]:
        self.attach()
        try:
            yield
        finally:
            self.detach()

    @torch.no_grad()
    def observe(self, site: Site, call: AttentionCall) -> None:
        """An observer of attention calls; the first one of the pass counts. In a reentrant checkpoint it has no gradients."""
        watch = self._watch
        if self.share is not None or watch is None:
            return
        failed = watch.ended
        watch.reached(site, call)
        self._stop(at_end=False)
        logits, name = logits_share(call, self.samples), site.name or type(site.module).__name__
        if all(are_alike(x) for x in (call.q, call.k, call.v) if x is not None):
            self.share = PositionShare(site=name, logits=logits, note=ALIKE)
        elif added := added_positions(sums_of(watch, self._padding)):
            self.share = PositionShare(site=name, logits=logits, **_parts(added))
        else:
            self.share = PositionShare(site=name, logits=logits, note=UNSEEN if failed else self._why_none())

    def _why_none(self) -> str:
        why = why_none(self.model, Search())
        if self._outermost is self.model:
            return why
        return f"{why[:-1]} (only what happened inside its {type(self._outermost).__name__} was seen)."

    def _begin(self, module: nn.Module, _: Any, kwargs: Mapping[str, Any]) -> None:
        if self._watch is not None or self.share is not None or not self.wanted():
            return
        try:
            self._entered.enter_context(uncompiled())
        except RuntimeError:  # between two pieces of compiled code, which are not followed
            return
        self._watch, self._outermost, self._padding = Watch(self.model), module, padding_of(kwargs)
        self._entered.enter_context(self._watch)

    def _end(self, module: nn.Module, *_: Any) -> None:
        if module is self._outermost:
            self._stop()

    def _stop(self, *, at_end: bool = True) -> None:
        """Leave the watch. Where that cannot be done yet, it only looks no more, until the end of the pass.

        Not while another mode is entered upon it; nor inside of what `torch.compile` wraps, which would bring back its dispatch
        key without it, and break every later operation of the process.
        """
        if self._watch is not None:
            self._watch.ended = True
            if _get_current_dispatch_mode() is self._watch and (at_end or not _inside_compiled()):
                self._entered.close()
                self._watch = None


def _inside_compiled() -> bool:
    """Whether a wrapper of `torch.compile` is among the calls that led here."""
    frame = sys._getframe(1) if "torch._dynamo" in sys.modules else None
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("torch._dynamo"):
            return True
        frame = frame.f_back
    return False


class Watch(Follow):  # type: ignore[no-untyped-call]
    """Follows a pass that must not fail: what cannot be followed ends the watch, and not the pass."""

    supports_higher_order_operators = True
    ended = False

    @property
    def sums(self) -> list[Sum]:
        """Those that reached q, k or v: a decoder may embed its own tokens before the encoder attends."""
        return [one for place, one in enumerate(self._sums) if place in self._content]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.ended or not isinstance(func, torch._ops.OpOverload):
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def before(self, *operation: Any) -> Any:
        return self._tried(super().before, *operation)

    def after(self, *operation: Any) -> None:
        if not self.ended:
            self._tried(super().after, *operation)

    def _tried(self, note: Callable[..., Any], *operation: Any) -> Any:
        try:
            return note(*operation)
        except Exception:  # tensors of other people's classes may have neither shape nor storage
            self.ended = True
            return None


class Hook:
    """A hook on a module that calls a function; that of a copy or a pickle of the module does nothing."""

    def __init__(self, function: Callable[..., None] | None) -> None:
        self.function = function

    def __call__(self, *args: Any) -> None:
        if self.function is not None and not torch.compiler.is_compiling():
            self.function(*args)

    def __reduce__(self) -> Any:
        return Hook, (None,)


def added_positions(sums: Sequence[Addition]) -> list[Addition]:
    """The sums that add positions, learned or fixed; if there are none, those that add zeros to each token, as some start."""
    found = [one for one in sums if one.adds_positions()]
    return found or [one for one in sums if one.spans_tokens and one.sources and not one.term.any()]


def _parts(added: Sequence[Addition]) -> dict[str, Any]:
    """Positions and content over the sums that no other one continues, as those of states, actions and returns side by side.

    Positions that were added before such a sum, on the way to it, are positions there too.
    """
    continued = frozenset[int]().union(*(one.parts for one in added))
    squares, count = [0.0, 0.0], 0
    for last in (one for one in added if one.place not in continued):
        before = [one for one in added if one.place in last.parts and one.term.shape == last.term.shape]
        position = torch.stack([one.term.float() for one in (*before, last)]).sum(dim=0)
        content = last.term.float() + last.rest.float() - position
        for part, x in enumerate((position, content)):
            squares[part] += last.rms(x).item() ** 2 * last.numbers
        count += last.numbers
    names = frozenset[str]().union(*(one.sources for one in added))
    position_rms, content_rms = (math.sqrt(x / count) for x in squares)
    return {"parameters": sorted(names), "position": position_rms, "content": content_rms}
