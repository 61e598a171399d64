"""Measure the attention of a model while it trains, at almost no cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from eureka.errors import RequestError, WorkError
from eureka.patching.attach import AttentionCall, Layers, OptimiserSteps, Site, attached
from eureka.probes.capture import sites_of
from eureka.probes.copying import Copying
from eureka.probes.head_statistics import head_statistics
from eureka.probes.induction import Shown, attention_scores
from eureka.probes.position_share import FirstAttention
from eureka.probes.projections import projections
from eureka.runs import ProbeRecord, SiteRecord


class AttentionProbe:
    """Entropy, Σp², row spread and q, k, v gradients of every layer and head, at an interval of training steps.

    Unless `layers` leaves some out, a record also has the position share of the first attention (`eureka.position_share`). After
    `show`, it has the induction-head scores of the tokens that were shown (`eureka.induction_scores`).

    It follows the optimiser that trains the model: it measures the first forward pass of a step, and the gradients that are
    there after ``optimiser.step()``. Between the steps that it measures, nothing is attached to the model. Where no optimiser
    can be followed, call `step()` after each backward pass.

    Args:
        every: training steps from one record to the next; the first step is measured
        layers: which sites, as for `eureka.patch`
        samples: how many samples of a batch are measured; None for all
        on_record: called with each record, for loggers

    >>> import torch
    >>> model = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> with AttentionProbe(model) as probe, probe.look():
    ...     _ = model(torch.randn(4, 6, 8))
    >>> sorted(probe.records[0].sites[0].values)
    ['entropy', 'near_one_hot', 'near_uniform', 'participation', 'spread']
    """

    def __init__(
        self,
        model: nn.Module,
        every: int = 50,
        *,
        layers: Layers | None = None,
        samples: int | None = 16,
        on_record: Callable[[ProbeRecord], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        if every < 1:
            raise RequestError(f"a probe measures every 1 step or more, not every {every}.")
        self.model, self.every, self.samples, self.on_record = model, every, samples, on_record
        self.sites = sites_of(model, layers)
        self._projections = [projections(site) for site in self.sites]
        self.records: list[ProbeRecord] = []
        self.steps = 0
        self._measured: dict[int, dict[str, list[float]]] = {}
        self._heads: dict[int, dict[str, int]] = {}
        self._all_sites = layers is None
        self._first = FirstAttention(model, self.sites, self._is_wanted, samples)
        self._copying = Copying(model, self.sites)
        self._shown: Shown | None = None
        self._attached: ExitStack | None = None
        self._any_mode = False
        self._on_failure = on_failure
        self._optimiser = OptimiserSteps(model, self._finish_step)
        self._prepare()

    def step(self) -> None:
        """Finish a step by hand, while the gradients of its backward pass are there; optimisers are no longer followed."""
        self._optimiser.close()
        self._finish_step()

    @property
    def measures(self) -> bool:
        """Whether the coming pass is measured."""
        return self._attached is not None

    def show(self, tokens: Tensor, asked: Tensor | None = None) -> None:
        """Say which tokens the coming pass sees: the record of this step then has induction-head scores.

        tokens   (B, N) integers: two places that hold the same token have the same number
        asked    (B, N) boolean: the places at which prefix matching counts; None for all
        """
        self._shown = Shown(tokens, asked)

    @contextmanager
    def look(self) -> Iterator[None]:
        """Measure the forward passes of this block, whatever the step, and the gradients if there was a backward pass."""
        self._attach()
        self._any_mode = True
        try:
            yield
            self._record()
        finally:
            self._any_mode = False
            self._detach()
        self._prepare()

    def close(self) -> None:
        """Detach from the model and from its optimiser."""
        self._optimiser.close()
        self._detach()

    def pause(self) -> None:
        """Leave the model alone until `resume`."""
        self._detach()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._prepare()

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.steps = int(state["steps"])
        self._detach()
        self._prepare()

    def _prepare(self) -> None:
        """Attach to the model if the coming step is to be measured."""
        if self.steps % self.every == 0:
            self._attach()

    def _finish_step(self) -> None:
        try:
            if self._attached is not None:
                self._record()
                self._detach()
            self.steps += 1
            self._prepare()
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Measure no more, if someone listens; else it is the caller's error."""
        if self._on_failure is None:
            raise error
        self.close()
        self._on_failure(error)

    def _record(self) -> None:
        missing = [site.name for site in self.sites if site.index not in self._measured]
        if len(missing) == len(self.sites):
            raise WorkError(
                f"the probe saw no attention call in step {self.steps}: the model did not run, it runs compiled (probe it without"
                " torch.compile), or it attends in a way that could not be followed."
            )
        self._copying.begin()
        sites = [self._site_record(site, number) for number, site in enumerate(self.sites) if site.index in self._measured]
        self.records.append(ProbeRecord(self.steps, sites, self._first.share))
        if self.on_record is not None:
            self.on_record(self.records[-1])

    def _site_record(self, site: Site, number: int) -> SiteRecord:
        values = dict(self._measured[site.index])
        parts = {letter: p.gradient(self._heads[site.index][letter]) for letter, p in self._projections[number].items()}
        found = {f"grad_{letter}": gradient for letter, gradient in parts.items() if gradient is not None}
        if len(found) == 3:
            found["grad_ratio"] = gradient_ratio(found["grad_q"], found["grad_k"], found["grad_v"])
        if "previous_token" in values:
            found |= self._copying.scores(site, self._heads[site.index]["q"], self._heads[site.index]["v"])
        return SiteRecord(site.index, site.name, values | found)

    def _observe(self, site: Site, call: AttentionCall) -> None:
        """Measure the first call of a site in a step; a pass without gradients is taken for validation."""
        try:
            if self._all_sites:
                self._first.observe(site, call)
            if site.index not in self._measured and self._is_wanted():
                self._measured[site.index] = head_statistics(call, self.samples)
                if self._shown is not None and self._shown.fits(call):
                    self._measured[site.index] |= attention_scores(call, self._shown, self.samples)
                self._heads[site.index] = {"q": call.q.shape[1], "k": call.k.shape[1], "v": call.value_heads}
        except Exception as error:
            self._failed(error)

    def _is_wanted(self) -> bool:
        return self._any_mode or torch.is_grad_enabled()

    def _attach(self) -> None:
        """Wait for the next pass; what was measured before is forgotten."""
        self._measured.clear()
        if self._attached is None:
            self._attached = attached(self.model, self.sites, observer=self._observe)
        if self._all_sites:
            self._first.attach()

    def _detach(self) -> None:
        self._first.detach()
        self._shown = None
        if self._attached is not None:
            self._attached.close()
            self._attached = None

    def __enter__(self) -> AttentionProbe:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def gradient_ratio(q: list[float], k: list[float], v: list[float]) -> list[float]:
    """(|∂W_Q| + |∂W_K|) / (2 |∂W_V|) head by head; small when the softmax passes no gradient on.

    >>> gradient_ratio([1.0, 1.0], [3.0], [4.0])
    [0.5, 0.5]
    """
    heads = max(len(q), len(k), len(v))
    q, k, v = ([x for x in part for _ in range(heads // len(part))] for part in (q, k, v))  # grouped heads share their keys
    return [(a + b) / (2 * c) if c > 0 else math.nan for a, b, c in zip(q, k, v, strict=True)]
