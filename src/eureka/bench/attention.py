"""Operators beside PyTorch's fused attention and their own printed formulas; steps of patched models beside unpatched ones.

Head dimension 64, 4 heads, single precision, one thread; about 4,096 tokens at every length, in as many samples as that makes, so
that short sequences are measured as they are trained: in batches. Steps of whole models come from `eureka.bench.model_steps`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor

from eureka.attention import statistics
from eureka.attention.mask import Causal, KeyPadding, Mask, NoMask, visible_keys
from eureka.attention.operator import make_operator
from eureka.bench import model_steps
from eureka.bench.formulas import formula_of
from eureka.bench.memory import peak_megabytes
from eureka.bench.timing import Job, interleaved

HEADS, HEAD_DIM, TOKENS = 4, 64, 4096
LENGTHS = [17, 197, 1024, 4096]
UNTIMED = 16384
"""At this length only memory is measured: the printed formula would need over 16 GB."""
MASKS = ["none", "causal", "padding"]
PADDED = {"whole": False, "padded": True}
"""The masks of a model's step: whether samples are padded; whether attention is causal depends on the model."""
FAST = ["temperature", "heat_treatment", "learnable_temperature", "ssmax", "qk_norm"]
OTHERS = ["norm_softmax_var", "qk_layernorm", "softmax_plus_one", "linear", "sigmoid"]
STATISTICS = ["attention_entropy", "participation", "row_spread"]
BOTH = ["forward", "forward+backward"]


@dataclass(frozen=True)
class Case:
    """One operator (or statistic) at one length under one mask."""

    op: str
    n: int
    mask: str
    model: str | None = None
    """a training step of this model of transformers, patched, beside the model's own with SDPA"""


@dataclass(frozen=True)
class OperatorCost:
    """Time and memory of a case in one mode; None where it was not measured."""

    op: str
    n: int
    batch: int
    mask: str
    mode: str
    time_vs_sdpa: float | None
    time_vs_explicit: float | None
    peak_mb: float | None
    explicit_peak_mb: float | None


def plan(quick: bool = False) -> list[Case]:
    """Everything, or what takes half a minute."""
    if quick:
        return [*_cases(["norm_softmax"], [17, 197], MASKS), *_cases(["temperature", "qk_norm"], [197], ["none"])]
    return [
        *_cases(["norm_softmax"], LENGTHS, MASKS),
        *_cases(["softmax"], LENGTHS, ["none"]),
        *_cases(FAST, [197, 1024], ["none"]),
        *_cases(["learnable_temperature", "qk_norm"], [4096], ["none"]),
        *_cases(OTHERS, [197, 1024], ["none"]),
        *_cases(STATISTICS, [4096], ["none", "causal"]),
        *_cases(["norm_softmax"], [UNTIMED], ["none", "causal"]),
        *(Case(op, model_steps.TOKENS, mask, model) for model in steps() for mask in PADDED for op in model_steps.FIXES),
    ]


def steps() -> tuple[str, ...]:
    """The models whose patched steps are measured: none where transformers is not installed."""
    return model_steps.MODELS if find_spec("transformers") else ()


def run(cases: Sequence[Case], rounds: int = 5, progress: Callable[[str], None] = lambda _: None) -> Iterator[OperatorCost]:
    """The costs of all cases; those of one length and mask are timed together, against the same runs of the baselines."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for (n, mask, model), group in itertools.groupby(sorted(cases, key=_together), _together):
            ops = list(dict.fromkeys(case.op for case in group))
            progress(f"{model + ' step, ' if model else ''}{n} tokens, mask {mask}: {', '.join(ops)}")
            yield from _step_costs(ops, model, mask, rounds) if model else _operator_costs(ops, n, mask, rounds)
    finally:
        torch.set_num_threads(threads)


def _together(case: Case) -> tuple[int, str, str]:
    return case.n, case.mask, case.model or ""


def as_documents(costs: Iterable[OperatorCost]) -> list[dict[str, object]]:
    return [asdict(cost) for cost in costs]


def jobs(op: str, n: int, mask: str, explicit: bool = False) -> dict[str, Job]:
    """The jobs of one case by mode: what `eureka.bench.memory` runs in a fresh process."""
    torch.set_num_threads(1)
    return _jobs(_explicit(op, n, mask) if explicit else _attention(op, n, mask), n, modes(op))


def sdpa_jobs(n: int, mask: str) -> dict[str, Job]:
    """The same of PyTorch's fused attention alone."""
    torch.set_num_threads(1)
    return _jobs(_sdpa(n, mask), n, BOTH)


def modes(op: str) -> list[str]:
    return BOTH[:1] if op in STATISTICS else BOTH


def _operator_costs(ops: Sequence[str], n: int, mask: str, rounds: int) -> Iterator[OperatorCost]:
    times = _times(ops, n, mask, rounds) if n < UNTIMED else {}
    for op in ops:
        peaks = peak_megabytes("eureka.bench.attention:jobs", op=op, n=n, mask=mask)
        shown = op == "norm_softmax" and mask == "none" and 1024 <= n < UNTIMED
        printed = peak_megabytes("eureka.bench.attention:jobs", op=op, n=n, mask=mask, explicit=True) if shown else {}
        for mode in modes(op):
            own, sdpa, formula = (times.get((mode, name)) for name in (op, "sdpa", f"explicit {formula_of(op)[0]}"))
            ratios = _ratio(own, sdpa), _ratio(own, formula)
            yield OperatorCost(op, n, _batch(n), mask, mode, *ratios, peaks[mode], printed.get(mode))


def _step_costs(ops: Sequence[str], model: str, mask: str, rounds: int) -> Iterator[OperatorCost]:
    for cost in model_steps.step_costs(model, PADDED[mask], rounds):
        if cost.what in ops:
            ratio = round(cost.vs_unpatched, 3)
            yield OperatorCost(cost.what, model_steps.TOKENS, model_steps.BATCH, mask, f"{model} step", ratio, None, None, None)


def _times(ops: Sequence[str], n: int, mask: str, rounds: int) -> dict[tuple[str, str], float]:
    """Processor seconds by mode and name, of the operators and of their baselines."""
    found: dict[tuple[str, str], float] = {}
    for mode in BOTH:
        wanted = [op for op in ops if mode in modes(op)]
        if not wanted:
            continue
        calls: dict[str, Callable[..., Tensor]] = {"sdpa": _sdpa(n, mask)}
        calls |= {op: _attention(op, n, mask) for op in wanted}
        calls |= {f"explicit {formula_of(op)[0]}": _explicit(op, n, mask) for op in wanted}
        timed = interleaved({name: _jobs(call, n, [mode])[mode] for name, call in calls.items()}, rounds)
        found |= {(mode, name): seconds for name, seconds in timed.items()}
    return found


def _jobs(call: Callable[..., Tensor], n: int, wanted: Sequence[str]) -> dict[str, Job]:
    q, k, v = _inputs(n)
    direction = torch.ones_like(q)

    def forward() -> None:
        with torch.no_grad():
            call(q, k, v)

    def both() -> None:
        for x in (q, k, v):
            x.grad = None
        call(q, k, v).backward(direction)  # type: ignore[no-untyped-call]

    made: Mapping[str, Job] = {"forward": forward, "forward+backward": both}
    return {mode: made[mode] for mode in wanted}


def _attention(op: str, n: int, mask: str) -> Callable[..., Tensor]:
    kind = _mask(n, mask)
    if op == "row_spread":
        return lambda q, k, v: statistics.row_spread(q, k, kind)
    if op in STATISTICS:
        statistic = {"attention_entropy": statistics.attention_entropy, "participation": statistics.participation}[op]
        return lambda q, k, v: statistic(q, k, HEAD_DIM**-0.5, kind)
    operator = make_operator(op, heads=HEADS, head_dim=HEAD_DIM, total_steps=100)
    return lambda q, k, v: operator(q, k, v, kind)


def _sdpa(n: int, mask: str) -> Callable[..., Tensor]:
    kind = _mask(n, mask)
    visible = visible_keys(kind, n, n) if isinstance(kind, KeyPadding) else None
    return partial(F.scaled_dot_product_attention, attn_mask=visible, is_causal=isinstance(kind, Causal))


def _explicit(op: str, n: int, mask: str) -> Callable[..., Tensor]:
    visible = visible_keys(_mask(n, mask), n, n)
    formula = formula_of(op)[1]
    return lambda q, k, v: formula(q, k, v, visible)


def _mask(n: int, mask: str) -> Mask:
    if mask == "causal":
        return Causal()
    if mask == "none":
        return NoMask()
    shown = torch.linspace(0.5, 1.0, _batch(n))[:, None] * n  # samples of different lengths, half to all of the tokens
    return KeyPadding(torch.arange(n) < shown.ceil())


def _inputs(n: int) -> list[Tensor]:
    """Logits of standard deviation 2, under the cap √64, where NormSoftmax has something to do; in memory as models lay them out,
    token by token with the heads side by side."""
    g = torch.Generator().manual_seed(0)
    tokens = (torch.randn(_batch(n), n, HEADS, HEAD_DIM, generator=g) * 0.5 for _ in range(3))
    return [x.transpose(1, 2).requires_grad_() for x in tokens]


def _batch(n: int) -> int:
    return max(1, TOKENS // n)


def _ratio(own: float | None, other: float | None) -> float | None:
    return None if own is None or other is None else round(own / other, 3)


def _cases(ops: Sequence[str], lengths: Sequence[int], masks: Sequence[str]) -> list[Case]:
    return [Case(op, n, mask) for n in lengths for mask in masks for op in ops]
