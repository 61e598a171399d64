"""What the doctor says: findings, each a cause with its evidence, and the diagnosis that ranks them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

from eureka.doctor.proposals import proposed
from eureka.formats import listing, plural

Cause = Literal[
    "lr_too_small", "lr_too_large", "not_in_optimizer", "no_gradient", "labels_unrelated", "labels_misaligned", "labels_ignored",
    "labels_constant", "loss_misuse", "attention_axis", "future_leak", "mask_blocks_context", "padding_used", "data_repeated",
    "data_sorted", "inputs_constant", "inputs_unscaled", "targets_unscaled", "dead_units", "precision", "clip_too_tight",
    "weight_decay_too_large", "dropout_too_large",
    "positions_missing", "rank_collapse", "attention_saturated", "attention_flat", "norm_mode",
    "gradients_kept", "not_a_number", "healthy",
]  # fmt: skip
CAUSES: tuple[str, ...] = get_args(Cause)
WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A cause, how sure it is, and what speaks for it."""

    cause: Cause
    sure: float
    """from 0 to 1: how likely this is a fault at all"""
    explains: float
    """from 0 to 1: how much of the trouble it would explain, if it is one"""
    evidence: tuple[str, ...]
    """numbers, each with what it is compared with, a sentence each"""
    advice: str
    code: str = ""
    """a line of code that carries out the advice, where there is one"""
    kind: str = ""
    """of a healthy run: learning, waiting, or at its floor"""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """the same evidence for programs"""

    @property
    def weight(self) -> float:
        """What findings are ranked by."""
        return self.sure * self.explains

    def __str__(self) -> str:
        kind = f", {self.kind}" if self.kind else ""
        lines = [f"{self.cause}{kind} ({self.sure:.0%} sure)", *(f"  {line}" for line in self.evidence), f"  → {self.advice}"]
        return "\n".join([*(_wrapped(line) for line in lines), *([f"      {self.code}"] if self.code else [])])

    def to_json(self) -> dict[str, Any]:
        numbers = {name: value if math.isfinite(value) else None for name, value in self.numbers.items()}
        return asdict(self) | {"evidence": list(self.evidence), "numbers": numbers}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Finding:
        """What `to_json` gave; a number that was not finite is not a number."""
        numbers = {name: math.nan if value is None else value for name, value in document["numbers"].items()}
        return cls(**{**document, "evidence": tuple(document["evidence"]), "numbers": numbers})


@dataclass(frozen=True, kw_only=True)
class CheckRecord:
    """A check that was made, or why it was not."""

    name: str
    seconds: float
    skipped: str = ""
    """why it was not made; empty if it was"""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """The findings, the likeliest cause first; `print` shows them."""

    findings: tuple[Finding, ...]
    checks: tuple[CheckRecord, ...]
    notes: tuple[str, ...]
    """what was read, chosen or assumed"""
    step_seconds: float | None = None
    """the time of one training step, by which the cost is told"""
    attention: bool = True
    """whether the model has any; without it no remedy for attention is proposed"""

    @property
    def cause(self) -> Cause:
        """The likeliest one."""
        return self.findings[0].cause

    @property
    def remedies(self) -> tuple[str, ...]:
        """Which remedies are worth a race (`eureka.race`); none where something has to be mended by hand first.

        Where a better learning rate was measured, that rate is the first; a rate of 0 has no multiples.
        """
        numbers = self.findings[0].numbers
        if (self.healthy and self.findings[0].kind != "waiting") or numbers.get("rate") == 0:
            return ()
        factor = numbers.get("factor", 1.0) if self.cause == "lr_too_small" else 1.0
        measured = [f"rate_x{round(factor)}"] if 1.0 < factor < math.inf else []
        return tuple(dict.fromkeys([*measured, *proposed(self.cause, attention=self.attention)]))

    @property
    def healthy(self) -> bool:
        return self.cause == "healthy"

    @property
    def seconds(self) -> float:
        return sum(check.seconds for check in self.checks)

    @property
    def cost(self) -> str:
        """How many checks were made, and the time that they took."""
        made = plural(sum(not check.skipped for check in self.checks), "check")
        steps = f", the time of {self.seconds / self.step_seconds:.0f} training steps" if self.step_seconds else ""
        return f"{made} in {self.seconds:.1f} s{steps}"

    def __str__(self) -> str:
        parts = [*map(str, self.findings), *(_wrapped(f"note: {note}") for note in self.notes)]
        reasons = dict.fromkeys(check.skipped for check in self.checks if check.skipped)
        failed = [_not_checked([check.name for check in self.checks if check.skipped == why], why) for why in reasons]
        raced = [_wrapped(f"Worth a race (eureka.race): {', '.join(self.remedies)}.")] if self.remedies else []
        return "\n".join([*parts, *raced, *map(_wrapped, failed), f"{self.cost}."])

    def to_json(self) -> dict[str, Any]:
        return {
            "findings": [finding.to_json() for finding in self.findings],
            "checks": [asdict(check) for check in self.checks],
            "notes": list(self.notes),
            "remedies": list(self.remedies),
            "seconds": self.seconds,
            "step_seconds": self.step_seconds,
            "attention": self.attention,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Diagnosis:
        """What `to_json` gave."""
        return cls(
            findings=tuple(Finding.from_json(one) for one in document["findings"]),
            checks=tuple(CheckRecord(**one) for one in document["checks"]),
            notes=tuple(document["notes"]),
            step_seconds=document["step_seconds"],
            attention=document.get("attention", True),  # a document of an older version does not say
        )


def _not_checked(names: list[str], why: str) -> str:
    return f"{listing(names)} {'was' if len(names) == 1 else 'were'} not checked: {why}"


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, WIDTH, subsequent_indent=indent, drop_whitespace=True, replace_whitespace=False)
