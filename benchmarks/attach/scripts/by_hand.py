"""A character-level MLP over names, with raw tensors as parameters and the update written out."""

import argparse
import random

import torch
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
args = parser.parse_args()

# made-up names
random.seed(42)
heads = ["an", "bel", "car", "dor", "el", "fin", "gar", "hal", "is", "jor", "kal", "lin", "mar", "nor"]
tails = ["a", "ia", "en", "is", "us", "ette", "on", "ina", "ie"]
words = [random.choice(heads) + random.choice(heads + [""] * 14) + random.choice(tails) for _ in range(3000)]

chars = sorted(set("".join(words)))
stoi = {s: i + 1 for i, s in enumerate(chars)}
stoi["."] = 0
itos = {i: s for s, i in stoi.items()}
vocab_size = len(itos)
block_size = 3


def build_dataset(words):
    X, Y = [], []
    for w in words:
        context = [0] * block_size
        for ch in w + ".":
            ix = stoi[ch]
            X.append(context)
            Y.append(ix)
            context = [*context[1:], ix]
    return torch.tensor(X), torch.tensor(Y)


n1 = int(0.9 * len(words))
Xtr, Ytr = build_dataset(words[:n1])
Xdev, Ydev = build_dataset(words[n1:])

g = torch.Generator().manual_seed(2147483647)
n_embd, n_hidden = 8, 64
C = torch.randn((vocab_size, n_embd), generator=g)
W1 = torch.randn((n_embd * block_size, n_hidden), generator=g) * (5 / 3) / ((n_embd * block_size) ** 0.5)
b1 = torch.randn(n_hidden, generator=g) * 0.01
W2 = torch.randn((n_hidden, vocab_size), generator=g) * 0.01
b2 = torch.zeros(vocab_size)
parameters = [C, W1, b1, W2, b2]
print(sum(p.nelement() for p in parameters), "parameters")
for p in parameters:
    p.requires_grad = True

lossi = []
for i in range(args.steps):
    # minibatch construct
    ix = torch.randint(0, Xtr.shape[0], (64,), generator=g)
    Xb, Yb = Xtr[ix], Ytr[ix]

    # forward pass
    emb = C[Xb]
    h = torch.tanh(emb.view(emb.shape[0], -1) @ W1 + b1)
    logits = h @ W2 + b2
    loss = F.cross_entropy(logits, Yb)

    # backward pass
    for p in parameters:
        p.grad = None
    loss.backward()

    # update
    lr = 0.2 if i < 300 else 0.05
    for p in parameters:
        p.data.add_(p.grad, alpha=-lr)

    if i % 40 == 0:
        print(f"{i:7d}/{args.steps:7d}: loss {loss.item():.4f}")
    lossi.append(loss.log10().item())


@torch.no_grad()
def split_loss(split):
    x, y = {"train": (Xtr, Ytr), "val": (Xdev, Ydev)}[split]
    h = torch.tanh(C[x].view(x.shape[0], -1) @ W1 + b1)
    print(split, "loss", round(F.cross_entropy(h @ W2 + b2, y).item(), 4))


split_loss("train")
split_loss("val")
