"""The least that NormSoftmax can cost beside SDPA on this machine, from its matrix-multiply rate.

The statistics of a row are products with d×d matrices. Forward and backward they take 8·N·d² operations a head without a mask
(the covariance and its product with q, twice each) and 14·N·d² with a causal one, in chunks of d rows. They come on top of SDPA,
whatever else is saved. Written out, attention takes six products of 2·N²·d instead, at the rate that batched products of that
size reach; of causal ones only the part that its blocks of rows see.

Every process gets other pages of memory, and short rows differ by a fifth between processes, so each case is measured in several.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor

from benchmarks.training import matmul_rate
from eureka.attention.norm_blocks import ROWS
from eureka.bench import attention
from eureka.bench.timing import interleaved

CASES = ((17, "causal"), (197, "none"), (197, "causal"), (1024, "causal"))
OPERATIONS = {"none": 8, "causal": 14}
PRODUCTS = 6
PROCESSES = 5
MODE = "forward+backward"


@dataclass(frozen=True)
class Floor:
    """Ratios to SDPA, forward and backward."""

    tokens: int
    mask: str
    measured: float
    """the median of the processes"""
    lowest: float
    highest: float
    fused_least: float
    """SDPA and the statistics at the rate of a large matrix product, and nothing else"""
    explicit_least: float
    """the products of attention written out at the rate that they reach, and nothing elementwise"""


def floors(processes: int = PROCESSES, cases: Sequence[tuple[int, str]] = CASES) -> list[Floor]:
    """Each case in so many processes, one after the other."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn, max_tasks_per_child=1) as pool:
        found = [[pool.submit(_ratios, n, mask) for _ in range(processes)] for n, mask in cases]
        return [_floor(n, mask, [one.result() for one in own]) for (n, mask), own in zip(cases, found, strict=True)]


def _floor(n: int, mask: str, ratios: list[tuple[float, float, float]]) -> Floor:
    measured, fused, explicit = zip(*ratios, strict=True)
    return Floor(n, mask, median(measured), min(measured), max(measured), median(fused), median(explicit))


def _ratios(n: int, mask: str) -> tuple[float, float, float]:
    """What was measured, the least of the fused way, and that of the written-out one; in times of SDPA."""
    torch.set_num_threads(1)
    jobs = {"sdpa": attention.sdpa_jobs(n, mask)[MODE], "ours": attention.jobs("norm_softmax", n, mask)[MODE]}
    seconds = interleaved(jobs, rounds=8, budget=10.0)
    heads, d = max(1, attention.TOKENS // n) * attention.HEADS, attention.HEAD_DIM
    q, k, weights = torch.randn(heads, n, d), torch.randn(heads, n, d), torch.rand(heads, n, n)
    seconds |= interleaved({"q·k": lambda: _product(q, k.transpose(1, 2)), "p·v": lambda: _product(weights, k)}, rounds=4)
    statistics = OPERATIONS[mask] * heads * n * d * d / matmul_rate()
    explicit = (PRODUCTS / 3 * seconds["q·k"] + 2 * PRODUCTS / 3 * seconds["p·v"]) * (_seen(n) if mask == "causal" else 1.0)
    own = seconds["sdpa"]
    return seconds["ours"] / own, 1 + statistics / own, explicit / own


def _seen(n: int) -> float:
    """The share of all weights that causal blocks make: k equal blocks of rows see (1 + 1/k) / 2 of them.

    >>> _seen(17), _seen(1024)
    (1.0, 0.5625)
    """
    return (1 + 1 / -(-n // ROWS)) / 2


def _product(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b)
