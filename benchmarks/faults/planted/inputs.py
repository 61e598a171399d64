"""What goes in is not worth learning from: data that repeats, is constant, unscaled or padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.faults.bases.gpt import GPT_ADAMW, GPT_SGD
from benchmarks.faults.bases.hand import HAND_BUFFERS, HAND_CAUSAL, HAND_SERIES
from benchmarks.faults.bases.hugging_face import HF_BUFFERS, HF_GPT2, HF_GPT2_PADDED, HF_ROWS, HF_VIT
from benchmarks.faults.bases.vit import VIT_DIGITS, VIT_MARK, VIT_PLACE
from benchmarks.faults.data.pictures import GREY
from benchmarks.faults.planted.changes import few_rows, with_batches, with_inputs
from benchmarks.faults.setup import Plan, Setup

__all__ = ["PLANS"]


def one_batch(setup: Setup) -> Setup:
    """The loader is asked for its first batch again and again."""
    return replace(setup, batches=[next(iter(setup.batches))])


def padding_is_a_label(batch: Any) -> Any:
    return {**batch, "labels": batch["input_ids"].clone()}


PLANS = [
    Plan("data_repeated", "one batch", GPT_ADAMW, one_batch, warm=80),
    Plan("data_repeated", "one batch", HAND_CAUSAL, one_batch, warm=60, log="list"),
    Plan("data_repeated", "12 rows", HF_GPT2, lambda setup: few_rows(setup, 12), warm=80),
    Plan("data_repeated", "20 pictures", VIT_DIGITS, build={"train": 20}, warm=60),
    Plan("data_repeated", "nearly all rows are copies of three", GPT_SGD, lambda setup: few_rows(setup, 3, 0.98), warm=60),
    Plan("inputs_constant", "black pictures", VIT_PLACE, with_inputs(torch.zeros_like)),
    Plan("inputs_constant", "all tokens unknown", GPT_ADAMW, with_inputs(torch.zeros_like), log="csv"),
    Plan("inputs_constant", "all tokens unknown", HF_ROWS, with_inputs(torch.ones_like), warm=50),
    Plan("inputs_unscaled", "values from 0 to 255", VIT_PLACE, build={"values": GREY}, also=("positions_missing",)),
    Plan("inputs_unscaled", "raw units", HAND_SERIES, build={"batch": False}, warm=80),
    Plan("inputs_unscaled", "values from 0 to 255", VIT_MARK, build={"values": GREY}, warm=50, log="list"),
    Plan("inputs_unscaled", "values from 0 to 255", HF_VIT, build={"values": GREY}, also=("positions_missing",)),
    Plan("padding_used", "mask not handed on", HAND_BUFFERS, build={"masked": False}, warm=80),
    Plan("padding_used", "mask not handed on", HF_BUFFERS, build={"masked": False}, warm=60),
    Plan("padding_used", "padding is a label", HF_GPT2_PADDED, with_batches(padding_is_a_label), warm=70),
]
