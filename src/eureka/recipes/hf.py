"""Hugging Face's own models, patched, in our training loop and studies like any other."""

from __future__ import annotations

from eureka.config import RunConfig, run_config
from eureka.recipes.recipe import Group

HF = Group("hf/")


@HF.add(parameters=412_560, minutes=5)
def roberta_masked_text() -> RunConfig:
    """hidden words of the State of the Union addresses, by transformers' RoBERTa"""
    return run_config(
        task={"name": "masked_text"},
        model={"name": "hf_roberta"},
        attention={"name": "softmax"},
        training={"steps": 1500, "lr": 1e-3, "batch_size": 32, "validation_samples": 128, "early_stop": True},
    )


@HF.add(parameters=152_641, minutes=5)
def gpt2_regression() -> RunConfig:
    """linear regression in the context, by transformers' GPT-2"""
    return run_config(
        task={"name": "regression"},
        model={"name": "hf_gpt2", "depth": 3},
        attention={"name": "softmax"},
        training={"steps": 4000, "lr": 1e-3, "batch_size": 64, "early_stop": True},
    )


@HF.add(parameters=111_424, minutes=1.5)
def gpt2_induction() -> RunConfig:
    """repeated random tokens, by transformers' GPT-2: find, then copy"""
    training = {"steps": 3000, "lr": 1e-4, "batch_size": 64, "validation_samples": 256, "early_stop": True}
    return run_config(
        task={"name": "induction"},
        model={"name": "hf_gpt2", "heads": 1},
        attention={"name": "softmax"},
        training=training,
    )
