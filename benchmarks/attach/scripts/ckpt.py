"""A transformer over sequences that recomputes its blocks in the backward pass to save memory."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, heads, dropout=dropout, batch_first=True)
        self.norm2 = nn.LayerNorm(dim)
        self.ff = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * dim, dim))

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.ff(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self, vocab, dim=32, depth=3, heads=4, max_len=32, num_classes=4, gradient_checkpointing=True):
        super().__init__()
        self.gradient_checkpointing = gradient_checkpointing
        self.embed = nn.Embedding(vocab, dim)
        self.pos = nn.Parameter(torch.randn(max_len, dim) * 0.02)
        self.layers = nn.ModuleList([Block(dim, heads, dropout=0.05) for _ in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos[: tokens.shape[1]]
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                x = checkpoint(layer, x, use_reentrant=False)
            else:
                x = layer(x)
        return self.head(self.norm(x).mean(dim=1))


def make_data(n, generator, vocab=16, length=20):
    """The class is which of the tokens 0..3 occurs most often."""
    tokens = torch.randint(4, vocab, (n, length), generator=generator)
    labels = torch.randint(4, (n,), generator=generator)
    slots = torch.rand(n, length, generator=generator).argsort(dim=1)[:, :4]
    tokens.scatter_(1, slots, labels[:, None].expand(-1, 4))
    return tokens, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--no_checkpointing", action="store_true")
    args = parser.parse_args()

    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    train_x, train_y = make_data(4096, generator)
    val_x, val_y = make_data(512, generator)

    model = Encoder(vocab=16, gradient_checkpointing=not args.no_checkpointing)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=0.01)

    model.train()
    for step in range(args.steps):
        idx = torch.randint(len(train_x), (args.batch_size,), generator=generator)
        logits = model(train_x[idx])
        loss = F.cross_entropy(logits, train_y[idx])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % 20 == 0 or step == 0:
            model.eval()
            with torch.no_grad():
                val_logits = model(val_x)
                val_loss = F.cross_entropy(val_logits, val_y)
                val_acc = (val_logits.argmax(-1) == val_y).float().mean()
            model.train()
            print(f"step {step + 1} | train loss {loss.item():.4f} | val loss {val_loss:.4f} | val acc {val_acc:.3f}")


if __name__ == "__main__":
    main()
