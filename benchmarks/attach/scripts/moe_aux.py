"""A transformer-like token classifier with a mixture of experts; the balancing loss is left on the module as `aux_loss`."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden)
        self.w2 = nn.Linear(hidden, dim)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)))


class SparseMoE(nn.Module):
    def __init__(self, dim, num_experts=4, top_k=2):
        super().__init__()
        self.gate = nn.Linear(dim, num_experts, bias=False)
        self.experts = nn.ModuleList([Expert(dim, 2 * dim) for _ in range(num_experts)])
        self.num_experts, self.top_k = num_experts, top_k
        self.aux_loss = torch.tensor(0.0)

    def forward(self, x):
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        probs = F.softmax(self.gate(x), dim=-1)
        weights, chosen = probs.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token_idx, slot = torch.where(chosen == i)
            if len(token_idx):
                out.index_add_(0, token_idx, expert(x[token_idx]) * weights[token_idx, slot, None])
        load = F.one_hot(chosen, self.num_experts).float().sum(dim=1).mean(dim=0)
        self.aux_loss = self.num_experts * (load * probs.mean(dim=0)).sum() / self.top_k
        return out.view(shape)


class Model(nn.Module):
    def __init__(self, vocab, dim=32, num_layers=2):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.mix = nn.ModuleList([nn.Conv1d(dim, dim, 3, padding=2) for _ in range(num_layers)])
        self.moe = nn.ModuleList([SparseMoE(dim) for _ in range(num_layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(dim) for _ in range(2 * num_layers)])
        self.head = nn.Linear(dim, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for i, (conv, moe) in enumerate(zip(self.mix, self.moe, strict=True)):
            h = conv(self.norms[2 * i](x).transpose(1, 2))[..., : tokens.shape[1]]  # causal
            x = x + h.transpose(1, 2)
            x = x + moe(self.norms[2 * i + 1](x))
        self.aux_loss = sum(moe.aux_loss for moe in self.moe)
        return self.head(x)


def get_batch(batch_size, length, vocab):
    """Each token is the sum of the two before it, modulo the vocabulary; the first two are random."""
    seq = torch.zeros(batch_size, length + 1, dtype=torch.long)
    seq[:, :2] = torch.randint(vocab, (batch_size, 2))
    for t in range(2, length + 1):
        seq[:, t] = (seq[:, t - 1] + seq[:, t - 2]) % vocab
    return seq[:, :-1], seq[:, 1:]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--aux_coef", type=float, default=0.01)
    args = parser.parse_args()
    torch.manual_seed(0)
    vocab = 7
    model = Model(vocab)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(args.steps):
        x, y = get_batch(16, 12, vocab)
        logits = model(x)
        ce = F.cross_entropy(logits[:, 1:].reshape(-1, vocab), y[:, 1:].reshape(-1))
        loss = ce + args.aux_coef * model.aux_loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            print(f"step {step:4d} | ce loss {ce.item():.4f} | aux {model.aux_loss.item():.4f}")


if __name__ == "__main__":
    main()
