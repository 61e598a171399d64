"""The signal dies on its way: positions, rank, attention."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.faults.bases.gpt import GPT_ADAMW
from benchmarks.faults.bases.hand import HAND_CAUSAL, HAND_CLOZE
from benchmarks.faults.bases.hugging_face import HF_MASKED
from benchmarks.faults.bases.tiles import TILES
from benchmarks.faults.bases.vit import VIT_FAR, VIT_PLACE
from benchmarks.faults.models.gpt import Block
from benchmarks.faults.models.hand import HandAttention, HandBlock
from benchmarks.faults.models.vit import Layer
from benchmarks.faults.planted.changes import Change, modules, scaled, with_batches, with_modules
from benchmarks.faults.setup import Plan, Setup

__all__ = ["PLANS"]


def faint_positions(factor: float) -> Change:
    """Fixed positions, far smaller than what they are added to."""

    def change(setup: Setup) -> Setup:
        model: Any = setup.model
        model.positions.mul_(factor)
        return setup

    return change


def loud(factor: float, *names: str) -> Change:
    def change(setup: Setup) -> Setup:
        scaled(setup.model, factor, *names)
        return setup

    return change


def all_at_place_zero(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "position_ids": torch.zeros_like(batch["input_ids"])}


def queries_and_keys(factor: float) -> Change:
    """Multiplies W_Q and W_K, also where they are rows of one matrix with W_V."""

    def change(setup: Setup) -> Setup:
        with torch.no_grad():
            for name, value in setup.model.named_parameters():
                if name.endswith(("qkv.weight", "in_proj_weight")):
                    value[: 2 * len(value) // 3].mul_(factor)
                elif name.endswith(("to_q.weight", "to_k.weight")):
                    value.mul_(factor)
        return setup

    return change


def cooled(factor: float) -> Change:
    """The logits are divided by too much."""

    def change(setup: Setup) -> Setup:
        for attention in modules(setup.model, HandAttention):
            attention.scale *= factor
        return setup

    return change


DEEP, SHALLOW = {"depth": 6}, {"depth": 1}

PLANS = [
    Plan("positions_missing", "none", VIT_PLACE, build={"positions": False}, warm=80),
    Plan("positions_missing", "drowned by content", VIT_FAR, loud(100, "stem.0.weight"), also=("inputs_unscaled",)),
    Plan("positions_missing", "faint", HAND_CLOZE, faint_positions(1e-3)),
    Plan("positions_missing", "none", HAND_CAUSAL, faint_positions(0.0), build={"depth": 1}, control={"depth": 1}, log="list"),
    Plan("positions_missing", "none", GPT_ADAMW, build={"positions": False, "depth": 1}, control={"depth": 1}),
    Plan("positions_missing", "all at place zero", HF_MASKED, with_batches(all_at_place_zero)),
    Plan("rank_collapse", "no residual connections", GPT_ADAMW, with_modules(Block, residual=False), build=DEEP, control=DEEP),
    Plan(
        "rank_collapse",
        "no residual connections",
        VIT_PLACE,
        with_modules(Layer, residual=False),
        build=DEEP,
        control=DEEP,
        warm=80,
    ),
    Plan(
        "rank_collapse",
        "no residual connections",
        HAND_CLOZE,
        with_modules(HandBlock, residual=False),
        build=DEEP,
        control=DEEP,
        log="csv",
    ),
    Plan("attention_saturated", "W_Q, W_K × 30", GPT_ADAMW, queries_and_keys(30), warm=80),
    Plan("attention_saturated", "W_Q, W_K × 30", HAND_CAUSAL, queries_and_keys(30)),
    Plan("attention_saturated", "W_Q, W_K × 60", VIT_FAR, queries_and_keys(60), log="list"),
    Plan("attention_saturated", "W_Q, W_K × 100", VIT_PLACE, queries_and_keys(100), warm=90),
    Plan("attention_flat", "softmax waits", TILES, control={"attention": "norm_softmax"}, warm=300),
    Plan("attention_flat", "logits ÷ 10,000", HAND_CAUSAL, cooled(1e-4), build=SHALLOW, control=SHALLOW, warm=100),
]
