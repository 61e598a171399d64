"""What decides how a model is trained."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator


class TrainingConfig(BaseModel):
    """How a model is trained. Every field can be set on the command line as ``training.<field>``."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    steps: PositiveInt = 1200
    """optimiser steps at most"""
    lr: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 3e-4
    """learning rate after warm-up"""
    batch_size: PositiveInt = 256
    """samples a step"""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """decides the initial weights and the training samples"""
    warmup: NonNegativeInt = 200
    """steps over which the learning rate rises from zero"""
    schedule: Literal["constant", "cosine"] = "constant"
    """the learning rate after warm-up"""
    final_lr: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1e-6
    """where a cosine schedule ends"""
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.05
    """of AdamW; biases, norms, positions and class token are exempt"""
    qk_lr_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """a control: W_Q and W_K learn at this multiple of the rate"""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """share of each label spread over all classes"""
    log_every: PositiveInt = 25
    """steps between two lines of metrics.jsonl, each with a validation"""
    probe_every: NonNegativeInt = 50
    """steps between two lines of attention.jsonl; 0: attention is not looked at"""
    validation_samples: PositiveInt = 1024
    """samples of each validation; the same ones for every run of a task"""
    early_stop: bool = False
    """end the run once it has had its Eureka-moment"""
    early_stop_after: NonNegativeInt = 200
    """how many steps later than the moment"""
    checkpoint_every: PositiveInt = 200
    """steps between two checkpoints"""
    threads: Annotated[int, Field(gt=0, le=1024)] = 1
    """processor threads; sums in another order give other last bits, so this is part of the config"""
    device: Literal["cpu", "cuda", "mps"] = "cpu"
    """where to train"""
    precision: Literal["float32", "bfloat16"] = "float32"
    """bfloat16: autocast, the weights stay in float32"""
    tensorboard: bool = False
    """log for TensorBoard as well, in the run folder"""
    deterministic: bool = True
    """false (or --fast) lets the device choose faster kernels whose last bits may change from run to run"""

    @model_validator(mode="after")
    def _warm_up_ends(self) -> TrainingConfig:
        if self.warmup >= self.steps:
            raise ValueError(f"training.warmup ({self.warmup}) must be below training.steps ({self.steps})")
        return self
