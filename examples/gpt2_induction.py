"""A causal GPT-2 learns induction: find where the present token stood before, and copy what followed it there.

    python examples/gpt2_induction.py                      # plain softmax
    python examples/gpt2_induction.py --fix norm_softmax   # the same, with another attention

Hugging Face's model in a loop of one's own; in the end the progress measure says how much attention goes where it should.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import eureka
from eureka.integrations.monitor import Monitor
from eureka.tasks.registry import TASKS


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def cells(lags: Tensor, length: int) -> Tensor:
    """Where an induction head looks: one place after the last occurrence of the present token, (B, Q, K)."""
    place = torch.arange(length)
    return place[None, None, :] == place[None, :, None] - lags[:, None, None] + 1


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", default="softmax", help="the attention; `eureka fixes` lists what there is")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    task = TASKS.build("induction")
    torch.manual_seed(options.seed)
    config = GPT2Config(
        vocab_size=task.vocabulary,
        n_positions=task.input_shape[0],
        n_embd=64,
        n_layer=2,
        n_head=1,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0),
        **dict.fromkeys(("bos_token_id", "eos_token_id")),
    )
    model = GPT2LMHeadModel(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(options.seed)
    for level in task.levels():
        say(f"who knows {level.knows} has a loss of {level.loss:.2f}")
    accuracy = 0.0
    with eureka.patch(model, options.fix, total_steps=options.steps), Monitor(model, every=100) as monitor:
        for step in range(options.steps):
            batch = task.sample(64, generator)
            outputs = model(batch.inputs).logits
            loss = task.loss(outputs, batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if event := monitor.update(step, loss.item()):
                what = "a plateau" if event.moment is None else f"a Eureka-moment at step {event.moment.steepest:,.0f}"
                say(f"step {step:,}: {what}, loss {loss.item():.2f}")
            accuracy = task.accuracy(outputs, batch).item()
        right = cells(batch.steps["lag"], task.input_shape[0])
        for found in eureka.attention_to(model, {"right": right}, batch.inputs):
            say(f"{found.name}: {found.attention['right'][0]:.3f} of its attention goes where an induction head looks")
    say(f"accuracy in the end {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
