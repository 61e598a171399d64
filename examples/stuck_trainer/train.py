"""A Trainer whose loss is flat: what keeps it, and what would get it moving."""

from __future__ import annotations

import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

import eureka

TOKENS, LENGTH = 32, 16


def sentences(count: int) -> list[dict[str, torch.Tensor]]:
    """Each token tells the next, but for one in ten."""
    rows = torch.randint(0, TOKENS, (count, LENGTH), generator=torch.Generator().manual_seed(0))
    surprise = torch.rand(rows.shape, generator=torch.Generator().manual_seed(1)) < 0.1
    for place in range(1, LENGTH):
        rows[:, place] = torch.where(surprise[:, place], rows[:, place], (5 * rows[:, place - 1] + 3) % TOKENS)
    return [{"input_ids": row, "labels": row} for row in rows]


def stuck(steps: int = 200) -> Trainer:
    """The run; its learning rate has lost three zeros."""
    config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    arguments = TrainingArguments(
        "runs/stuck_trainer", max_steps=steps, learning_rate=3e-6, per_device_train_batch_size=32, logging_steps=10,
        lr_scheduler_type="constant", save_strategy="no", report_to=[], use_cpu=True, seed=0,
    )  # fmt: skip
    return Trainer(GPT2LMHeadModel(config), arguments, train_dataset=sentences(2_000))


def main(steps: int = 200, race_steps: int = 120) -> None:
    trainer = stuck(steps)
    trainer.train()
    print(eureka.diagnose(trainer))  # noqa: T201
    print(eureka.race(trainer, remedies=["rate_x1000", "rate_x10", "norm_softmax"], steps=race_steps))  # noqa: T201


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
