"""Run as a module, from the folder that holds the package: python -m pkg_train.train --steps 200"""

import argparse
import random
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

from .model import TextCNN

GOOD = ["great", "lovely", "moving", "brilliant", "fun"]
BAD = ["dull", "awful", "boring", "clumsy", "flat"]
FILLER = ["the", "film", "was", "and", "story", "with", "actors", "music", "plot", "rather"]
VOCAB = {w: i for i, w in enumerate(["<pad>", "not", *GOOD, *BAD, *FILLER])}


def make_review(rng):
    words = [rng.choice(FILLER) for _ in range(rng.randint(5, 10))]
    positive = rng.random() < 0.5
    negated = rng.random() < 0.3
    opinion = rng.choice(GOOD if positive != negated else BAD)
    at = rng.randrange(len(words))
    words[at:at] = ["not", opinion] if negated else [opinion]
    return [VOCAB[w] for w in words], int(positive)


def collate(batch):
    tokens, labels = zip(*batch, strict=True)
    return pad_sequence([torch.tensor(t) for t in tokens], batch_first=True), torch.tensor(labels)


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--out", type=Path, default=None)
    return parser.parse_args()


def main():
    args = get_args()
    rng = random.Random(0)
    torch.manual_seed(0)
    reviews = [make_review(rng) for _ in range(2500)]
    train_loader = DataLoader(reviews[:2000], batch_size=32, shuffle=True, collate_fn=collate)
    val_loader = DataLoader(reviews[2000:], batch_size=100, collate_fn=collate)

    model = TextCNN(len(VOCAB))
    optimizer = torch.optim.RAdam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()

    step = 0
    while step < args.steps:
        model.train()
        for tokens, labels in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(tokens), labels)
            loss.backward()
            optimizer.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step}: loss {loss.item():.4f}")
            if step >= args.steps:
                break
        model.eval()
        with torch.no_grad():
            hits = sum((model(tokens).argmax(1) == labels).sum().item() for tokens, labels in val_loader)
        print(f"validation accuracy {hits / len(val_loader.dataset):.4f}")

    out = args.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), out / "textcnn.pt")


if __name__ == "__main__":
    main()
