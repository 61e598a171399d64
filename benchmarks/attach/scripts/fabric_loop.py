"""Sequence classification with Lightning Fabric."""

import argparse
import tempfile
from pathlib import Path

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class GRUClassifier(nn.Module):
    def __init__(self, vocab_size=12, embed_dim=16, hidden=32, num_classes=3):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.gru = nn.GRU(embed_dim, hidden, batch_first=True)
        self.fc = nn.Linear(hidden, num_classes)

    def forward(self, tokens):
        _, last = self.gru(self.embedding(tokens))
        return self.fc(last.squeeze(0))


def make_dataset(n, seed, length=10):
    """Which of the tokens 1, 2, 3 came last among the noise?"""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(4, 12, (n, length), generator=generator)
    labels = torch.randint(3, (n,), generator=generator)
    position = torch.randint(4, length, (n,), generator=generator)
    earlier = torch.randint(0, 4, (n,), generator=generator)
    rows = torch.arange(n)
    tokens[rows, earlier] = torch.randint(1, 4, (n,), generator=generator)
    tokens[rows, position] = labels + 1
    return TensorDataset(tokens, labels)


def validate(fabric, model, dataloader):
    model.eval()
    losses, hits = [], []
    with torch.no_grad():
        for tokens, labels in dataloader:
            logits = model(tokens)
            losses.append(F.cross_entropy(logits, labels))
            hits.append((logits.argmax(-1) == labels).float().mean())
    model.train()
    fabric.print(f"validation loss {torch.stack(losses).mean():.4f} accuracy {torch.stack(hits).mean():.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out_dir", type=Path, default=None)
    args = parser.parse_args()

    fabric = L.Fabric(accelerator="cpu", devices=1, precision="32-true")
    fabric.launch()
    fabric.seed_everything(1234)

    with fabric.init_module():
        model = GRUClassifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    model, optimizer = fabric.setup(model, optimizer)
    train_dataloader = DataLoader(make_dataset(3200, 0), batch_size=32, shuffle=True)
    val_dataloader = DataLoader(make_dataset(512, 1), batch_size=128)
    train_dataloader, val_dataloader = fabric.setup_dataloaders(train_dataloader, val_dataloader)

    state = {"model": model, "optimizer": optimizer, "iter_num": 0}
    while state["iter_num"] < args.steps:
        for tokens, labels in train_dataloader:
            logits = model(tokens)
            loss = F.cross_entropy(logits, labels)
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=1.0)
            optimizer.step()
            optimizer.zero_grad()
            state["iter_num"] += 1
            if state["iter_num"] % 20 == 0:
                fabric.print(f"iter {state['iter_num']}: loss {loss.item():.4f}")
            if state["iter_num"] >= args.steps:
                break
        validate(fabric, model, val_dataloader)

    out_dir = args.out_dir or Path(tempfile.mkdtemp())
    fabric.save(out_dir / "state.ckpt", state)


if __name__ == "__main__":
    main()
