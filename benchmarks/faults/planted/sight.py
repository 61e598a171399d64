"""A token sees what it must not, or does not see what it must: masks and axes."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.faults.bases.gpt import GPT_ADAMW, GPT_SGD
from benchmarks.faults.bases.hand import HAND_CAUSAL
from benchmarks.faults.bases.hugging_face import HF_DECODER, HF_GPT2
from benchmarks.faults.bases.vit import VIT_FAR, VIT_PLACE
from benchmarks.faults.models.gpt import CausalAttention
from benchmarks.faults.models.hand import HandAttention, HandModel
from benchmarks.faults.models.vit import Layer
from benchmarks.faults.planted.changes import Change, one_after_another, with_batches, with_modules
from benchmarks.faults.setup import Plan, Setup

__all__ = ["PLANS"]


def over(axis: int) -> Change:
    """The softmax is over another axis; the mask is finite, as many write it, so that no axis is blocked altogether."""
    return one_after_another(with_modules(HandModel, value=-1e9), with_modules(HandAttention, axis=axis))


def sees_itself_only(setup: Setup) -> Setup:
    """The mask of nn.MultiheadAttention says what is blocked; here it says what may be seen, inverted."""
    model: Any = setup.model
    tokens = model.positions.shape[1]
    return with_modules(Layer, mask=~torch.eye(tokens, dtype=torch.bool))(setup)


def only_the_first(batch: dict[str, Any]) -> dict[str, Any]:
    """The mask of the padding is inverted: all is hidden but the first token."""
    mask = torch.zeros_like(batch["input_ids"])
    mask[:, 0] = 1
    return {**batch, "attention_mask": mask}


PLANS = [
    Plan("attention_axis", "over the heads", HAND_CAUSAL, over(1), warm=80),
    Plan("attention_axis", "over the rows of the batch", HAND_CAUSAL, over(0)),
    Plan("attention_axis", "over the queries", HAND_CAUSAL, over(-2), build={"length": 40}, control={"length": 40}),
    Plan("attention_axis", "over the batch", VIT_PLACE, build={"batch_first": False}, log="list"),
    Plan("attention_axis", "over the batch", VIT_FAR, build={"batch_first": False}, warm=90),
    Plan("future_leak", "no mask", GPT_ADAMW, with_modules(CausalAttention, ahead=10**6)),
    Plan("future_leak", "one token ahead", GPT_SGD, with_modules(CausalAttention, ahead=1), warm=90),
    Plan("future_leak", "mask from the second diagonal", HAND_CAUSAL, with_modules(HandModel, diagonal=2)),
    Plan("future_leak", "mask adds 1, not −∞", HAND_CAUSAL, with_modules(HandModel, value=1.0), warm=80),
    Plan("future_leak", "not a decoder", HF_DECODER, build={"is_decoder": False}, log="csv"),
    Plan("mask_blocks_context", "window of one", GPT_ADAMW, with_modules(CausalAttention, window=1), warm=80),
    Plan("mask_blocks_context", "inverted", VIT_PLACE, sees_itself_only),
    Plan("mask_blocks_context", "inverted", HF_GPT2, with_batches(only_the_first), log="list"),
    Plan("mask_blocks_context", "window of one", GPT_SGD, with_modules(CausalAttention, window=1), warm=40),
]
