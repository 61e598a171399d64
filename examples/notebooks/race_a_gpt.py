# %% [markdown]
# # Patch and race a small GPT
#
# A GPT-2 that has to copy: random tokens, and then the same tokens again. Before it finds out that the answer stands in its own
# context, the loss sits at ln(tokens). What shortens that wait?

# %%
import math

import torch
from transformers import GPT2Config, GPT2LMHeadModel

import eureka

TOKENS, HALF = 16, 8
STEPS = 120  # of training before the race
RACE_STEPS = 200
BUDGET = 60  # seconds for the checks

# %%
torch.manual_seed(0)
config = GPT2Config(vocab_size=TOKENS, n_positions=2 * HALF, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
model = GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def batch() -> torch.Tensor:
    """Rows whose second half repeats the first."""
    first = torch.randint(TOKENS, (32, HALF))
    return torch.cat([first, first], dim=1)


def loss(model: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Of the second half alone: the first cannot be known."""
    logits = model(rows).logits[:, HALF - 1 : -1]
    return torch.nn.functional.cross_entropy(logits.reshape(-1, TOKENS), rows[:, HALF:].reshape(-1))


# %%
losses = []
for _ in range(STEPS):
    optimizer.zero_grad()
    value = loss(model, batch())
    value.backward()
    optimizer.step()
    losses.append(value.item())
print(f"loss {losses[-1]:.3f}; chance is {math.log(TOKENS):.3f}")

# %% [markdown]
# Why? The checks run on copies; the model and the optimiser stay bit for bit as they are.

# %%
batches = [batch() for _ in range(40)]
print(eureka.diagnose(model, batches, loss=loss, optimizer=optimizer, log=losses, budget=BUDGET))

# %% [markdown]
# What helps? Every remedy is tried beside waiting, on the same batches.

# %%
race = eureka.race(model, batches, loss=loss, optimizer=optimizer, remedies=["rate_x10", "norm_softmax"], steps=RACE_STEPS)
print(race)

# %% [markdown]
# `race.apply()` makes the winner your run. By hand, a fix is one line:

# %%
with eureka.patch(model, "norm_softmax") as patched:
    loss(model, batch()).backward()
    print(len(patched.sites), "attention layers")
