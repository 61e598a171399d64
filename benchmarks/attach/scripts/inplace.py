"""A hand-unrolled RNN that echoes its input with a delay; outputs are written into a preallocated tensor."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

DELAY = 3


class EchoRNN(nn.Module):
    def __init__(self, num_symbols, hidden):
        super().__init__()
        self.num_symbols = num_symbols
        self.hidden = hidden
        self.i2h = nn.Linear(num_symbols, hidden)
        self.h2h = nn.Linear(hidden, hidden, bias=False)
        self.h2o = nn.Linear(hidden, num_symbols)
        nn.init.orthogonal_(self.h2h.weight)

    def forward(self, tokens):
        batch, steps = tokens.shape
        x = F.one_hot(tokens, self.num_symbols).float()
        h = x.new_zeros(batch, self.hidden)
        out = x.new_zeros(batch, steps, self.num_symbols)
        for t in range(steps):
            h = torch.tanh(self.i2h(x[:, t]) + self.h2h(h))
            out[:, t] = self.h2o(h)
        return out


def sample(batch_size, length, num_symbols):
    tokens = torch.randint(num_symbols, (batch_size, length))
    targets = torch.zeros_like(tokens)
    targets[:, DELAY:] = tokens[:, :-DELAY]
    return tokens, targets


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=16)
    parser.add_argument("--symbols", type=int, default=6)
    args = parser.parse_args()

    torch.manual_seed(11)
    rnn = EchoRNN(args.symbols, hidden=48)
    opt = torch.optim.RMSprop(rnn.parameters(), lr=5e-4)
    weight = torch.ones(args.length)
    weight[:DELAY] = 0.0

    for it in range(args.steps):
        tokens, targets = sample(args.batch_size, args.length, args.symbols)
        opt.zero_grad()
        scores = rnn(tokens)
        loss = F.cross_entropy(scores.transpose(1, 2), targets, reduction="none")
        loss *= weight
        loss = loss.sum() / (args.batch_size * weight.sum())
        task_loss = loss.item()
        reg = sum(p.pow(2).sum() for p in rnn.parameters())
        loss += 1e-5 * reg
        loss.backward()
        nn.utils.clip_grad_value_(rnn.parameters(), 0.5)
        opt.step()
        if it % 25 == 0 or it == args.steps - 1:
            right = (scores.argmax(-1) == targets)[:, DELAY:].float().mean().item()
            print(f"it {it:4d}  loss {task_loss:.4f}  acc {right:.3f}")
