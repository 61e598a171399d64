"""What a patch costs Hugging Face's models, and what a probe costs: a training step of each beside the same step without."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from eureka.bench.timing import interleaved
from eureka.errors import MissingExtraError
from eureka.patching.patch import patch
from eureka.probes.attention import AttentionProbe

FIXES = ("softmax", "norm_softmax", "norm_softmax_var")
MODELS = ("roberta", "gpt2")
WORDS, BATCH, TOKENS, DIM, DEPTH, HEADS = 1000, 4, 128, 256, 4, 4
EVERY = 50
"""Steps between two probes."""


@dataclass(frozen=True)
class StepCost:
    """The time of a model's step with a patch or a probe, as a multiple of its own step with SDPA."""

    model: str
    padded: bool
    what: str
    """the fix, or the probe"""
    vs_unpatched: float


def step_costs(name: str, padded: bool, rounds: int) -> list[StepCost]:
    """Every fix and the probe, each in a copy of one model; the copies are timed in turns."""
    model, batch = _model(name), _batch(padded)
    jobs: dict[str, Callable[[], object]] = {"plain": partial(_step, copy.deepcopy(model), batch)}
    for fix in FIXES:
        changed = copy.deepcopy(model)
        patch(changed, fix)
        jobs[fix] = partial(_step, changed, batch)
    jobs["probe"] = partial(_probed_step, copy.deepcopy(model), batch)
    times = interleaved(jobs, rounds, budget=60.0)
    costs = [StepCost(name, padded, fix, times[fix] / times["plain"]) for fix in FIXES]
    share = (times["probe"] / times["plain"] - 1) / EVERY
    return [*costs, StepCost(name, padded, f"probe every {EVERY} steps", 1 + share)]


def _step(model: Any, batch: dict[str, torch.Tensor]) -> None:
    model.zero_grad()
    model(**batch).loss.backward()


def _probed_step(model: Any, batch: dict[str, torch.Tensor]) -> None:
    with AttentionProbe(model, every=1) as probe:
        _step(model, batch)
        probe.step()


def _batch(padded: bool) -> dict[str, torch.Tensor]:
    ids = torch.randint(5, WORDS, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    if padded:
        mask[::2, 3 * TOKENS // 4 :] = 0
    return {"input_ids": ids, "attention_mask": mask, "labels": ids}


def _model(name: str) -> Any:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "hf") from None
    torch.manual_seed(0)
    library: Any = transformers
    if name == "gpt2":
        sizes = {"n_embd": DIM, "n_layer": DEPTH, "n_head": HEADS, "n_positions": TOKENS, "bos_token_id": 1, "eos_token_id": 2}
        model = library.GPT2LMHeadModel(library.GPT2Config(vocab_size=WORDS, **sizes)).train()
        model.loss_type = "ForCausalLM"  # what it would fall back to, with a warning
        return model
    sizes = {"hidden_size": DIM, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS, "intermediate_size": 4 * DIM}
    return library.RobertaForMaskedLM(
        library.RobertaConfig(vocab_size=WORDS, max_position_embeddings=TOKENS + 2, **sizes)
    ).train()
