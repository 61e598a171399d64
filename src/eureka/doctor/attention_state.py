"""The state of attention in a training step of a fork: entropy, weights near one, and the gradients of q, k and v."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from eureka.doctor.exam import Exam
from eureka.doctor.view import View
from eureka.forks.case import Fork, seeded
from eureka.forks.trial import kept
from eureka.patching.sites import find_sites
from eureka.probes.attention import AttentionProbe
from eureka.probes.capture import attends
from eureka.runs import SiteRecord


@dataclass(frozen=True)
class AttentionState:
    """Means over heads, one number for each layer."""

    entropy: list[float]
    """of the rows, as a share of the most that it can be"""
    near_one_hot: list[float]
    """the share of rows with nearly all weight on one key"""
    spread: list[float]
    """of the logits in a row"""
    ratio: list[float]
    """the gradient of W_Q and W_K by that of W_V; empty where it is not known"""
    hand_written: bool

    @property
    def sharpness(self) -> list[float]:
        """How far the rows are from uniform: 0 if they are, 1 if all weight is on one key."""
        return [1.0 - entropy for entropy in self.entropy]


def has_attention(exam: Exam) -> bool:
    """Whether the model has any, of a kind that we know or seen in its forward pass; also if that cannot be told."""
    try:
        found = find_sites(exam.case.model)
        return bool(found.sites or found.refused or exam.view.softmaxes)
    except Exception:  # a proposal more is no harm
        return True


def attention_state(exam: Exam) -> AttentionState | None:
    """As the user's run is; None without attention."""
    return measure(exam, exam.case.fork())


def measure(exam: Exam, fork: Fork) -> AttentionState | None:
    """Of a fork, on the first batch; the fork is of no use afterwards."""
    found = _by_probe(exam, fork) if attends(fork.model) else None
    return found or _by_hand(exam.view_of(fork))


def _by_probe(exam: Exam, fork: Fork) -> AttentionState | None:
    fork.hold()
    fork.optimizer.zero_grad = lambda *args, **kwargs: None  # type: ignore[method-assign]
    with seeded(), kept(exam.case), AttentionProbe(fork.model) as probe, probe.look():
        loss = exam.case.train(fork, exam.case.batches[0])
    if not probe.records or not probe.records[-1].sites or not torch.isfinite(loss):
        return None
    sites = probe.records[-1].sites
    return AttentionState(
        entropy=_means(sites, "entropy"),
        near_one_hot=_means(sites, "near_one_hot"),
        spread=_means(sites, "spread"),
        ratio=_means(sites, "grad_ratio"),
        hand_written=False,
    )


def _means(sites: list[SiteRecord], measure: str) -> list[float]:
    return [value for site in sites if (value := site.mean(measure)) is not None and math.isfinite(value)]


def _by_hand(view: View) -> AttentionState | None:
    """From the softmaxes that were seen."""
    weights = [call.weights.float().movedim(call.axis, -1) for call in view.softmaxes if call.axis == call.summed]
    if not weights:
        return None
    return AttentionState(
        entropy=[_entropy(one) for one in weights],
        near_one_hot=[float((one.amax(dim=-1) > 0.99).float().mean()) for one in weights],
        spread=[],
        ratio=[],
        hand_written=True,
    )


def _entropy(weights: Tensor) -> float:
    """Over rows that see two keys or more, by the logarithm of how many they see."""
    seen = (weights > 0).sum(dim=-1)
    entropy = -(weights * weights.clamp_min(1e-12).log()).sum(dim=-1)
    rows = seen > 1
    return float((entropy[rows] / seen[rows].float().log()).mean()) if bool(rows.any()) else math.nan
