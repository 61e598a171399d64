"""A compiled transformer that learns to reverse sequences, one token at a time."""

import argparse
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

VOCAB, LENGTH = 8, 6
SEP = VOCAB


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Layer(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RMSNorm(dim), RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.proj = nn.Linear(dim, dim, bias=False)
        self.gate, self.up = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self, dim=32, depth=2, heads=4):
        super().__init__()
        self.tok = nn.Embedding(VOCAB + 1, dim)
        self.pos = nn.Parameter(0.1 * torch.randn(2 * LENGTH + 1, dim))
        self.layers = nn.ModuleList([Layer(dim, heads) for _ in range(depth)])
        self.norm = RMSNorm(dim)
        self.out = nn.Linear(dim, VOCAB, bias=False)

    def forward(self, tokens):
        x = self.tok(tokens) + self.pos[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))


def get_batch(n):
    seq = torch.randint(VOCAB, (n, LENGTH))
    tokens = torch.cat([seq, torch.full((n, 1), SEP), seq.flip(1)[:, :-1]], dim=1)
    return tokens, seq.flip(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--backend", default="inductor", choices=["inductor", "aot_eager", "eager"])
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()

    torch.manual_seed(5)
    model = Model()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    print("compiling the model...")
    model = torch.compile(model, backend=args.backend)

    t0 = time.perf_counter()
    for step in range(args.steps):
        tokens, answer = get_batch(args.batch_size)
        logits = model(tokens)[:, LENGTH:]
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), answer.reshape(-1))
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == args.steps - 1:
            print(f"step {step:4d} loss {loss.item():.4f} ({time.perf_counter() - t0:.1f}s)")


if __name__ == "__main__":
    main()
