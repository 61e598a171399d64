"""A character model with reentrant activation checkpointing, switched on as `model.gradient_checkpointing_enable()`."""

import argparse
import random
from functools import partial

import torch
import torch.nn as nn
import torch.utils.checkpoint

WORDS = "alpha beta gamma delta epsilon zeta theta kappa lambda sigma omega".split()


class DecoderLayer(nn.Module):
    def __init__(self, hidden_size, num_heads):
        super().__init__()
        self.input_layernorm = nn.LayerNorm(hidden_size)
        self.self_attn = nn.MultiheadAttention(hidden_size, num_heads, batch_first=True)
        self.post_attention_layernorm = nn.LayerNorm(hidden_size)
        self.up_proj = nn.Linear(hidden_size, 3 * hidden_size)
        self.down_proj = nn.Linear(3 * hidden_size, hidden_size)

    def forward(self, hidden_states, attention_mask):
        residual = hidden_states
        hidden_states = self.input_layernorm(hidden_states)
        hidden_states, _ = self.self_attn(
            hidden_states, hidden_states, hidden_states, attn_mask=attention_mask, need_weights=False
        )
        hidden_states = residual + hidden_states
        residual = hidden_states
        hidden_states = self.post_attention_layernorm(hidden_states)
        return residual + self.down_proj(nn.functional.silu(self.up_proj(hidden_states)))


class Decoder(nn.Module):
    def __init__(self, vocab_size, hidden_size=48, num_layers=2, num_heads=4, max_length=64):
        super().__init__()
        self.embed_tokens = nn.Embedding(vocab_size, hidden_size)
        self.embed_positions = nn.Embedding(max_length, hidden_size)
        self.layers = nn.ModuleList([DecoderLayer(hidden_size, num_heads) for _ in range(num_layers)])
        self.norm = nn.LayerNorm(hidden_size)
        self.lm_head = nn.Linear(hidden_size, vocab_size, bias=False)
        self._gradient_checkpointing_func = None

    def gradient_checkpointing_enable(self):
        self._gradient_checkpointing_func = partial(torch.utils.checkpoint.checkpoint, use_reentrant=True)

    def forward(self, input_ids):
        T = input_ids.shape[1]
        hidden_states = self.embed_tokens(input_ids) + self.embed_positions(torch.arange(T, device=input_ids.device))
        mask = torch.triu(torch.full((T, T), float("-inf"), device=input_ids.device), diagonal=1)
        for layer in self.layers:
            if self._gradient_checkpointing_func is not None and self.training:
                hidden_states = self._gradient_checkpointing_func(layer.__call__, hidden_states, mask)
            else:
                hidden_states = layer(hidden_states, mask)
        return self.lm_head(self.norm(hidden_states))


parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=250)
parser.add_argument("--batch_size", type=int, default=16)
parser.add_argument("--seq_len", type=int, default=32)
args = parser.parse_args()

torch.manual_seed(0)
random.seed(0)
text = " ".join(random.choice(WORDS) for _ in range(4000))
alphabet = sorted(set(text))
ids = torch.tensor([alphabet.index(c) for c in text])

model = Decoder(len(alphabet))
model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
loss_fct = nn.CrossEntropyLoss()

model.train()
running = 0.0
for step in range(1, args.steps + 1):
    starts = torch.randint(0, len(ids) - args.seq_len - 1, (args.batch_size,))
    chunk = torch.stack([ids[s : s + args.seq_len + 1] for s in starts])
    input_ids, labels = chunk[:, :-1], chunk[:, 1:]
    logits = model(input_ids)
    loss = loss_fct(logits.reshape(-1, logits.size(-1)), labels.reshape(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    running += loss.item()
    if step % 25 == 0:
        print(f"step={step} loss={running / 25:.4f}")
        running = 0.0
