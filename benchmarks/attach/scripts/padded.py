"""nn.TransformerEncoder over sequences of different lengths, padded, with a key padding mask."""

import argparse
import math
import random
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD = 0
VOCAB = 8


class PairsDataset(Dataset):
    """Is the first token repeated anywhere later in the sequence?"""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.examples = []
        for _ in range(n):
            first, *rest = [rng.randrange(1, VOCAB) for _ in range(rng.randint(4, 12))]
            rest = [t for t in rest if t != first] or [first % (VOCAB - 1) + 1]
            label = rng.randrange(2)
            if label:
                rest[rng.randrange(len(rest))] = first
            self.examples.append((torch.tensor([first, *rest]), label))

    def __len__(self):
        return len(self.examples)

    def __getitem__(self, i):
        return self.examples[i]


def collate_fn(batch):
    sequences = pad_sequence([s for s, _ in batch], batch_first=True, padding_value=PAD)
    return sequences, sequences == PAD, torch.tensor([label for _, label in batch], dtype=torch.float32)


class PositionalEncoding(nn.Module):
    def __init__(self, d_model, max_len=64):
        super().__init__()
        position = torch.arange(max_len).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
        pe = torch.zeros(1, max_len, d_model)
        pe[0, :, 0::2] = torch.sin(position * div_term)
        pe[0, :, 1::2] = torch.cos(position * div_term)
        self.register_buffer("pe", pe)

    def forward(self, x):
        return x + self.pe[:, : x.size(1)]


class Classifier(nn.Module):
    def __init__(self, d_model=32, nhead=4, d_hid=64, nlayers=2, dropout=0.0):
        super().__init__()
        self.d_model = d_model
        self.embedding = nn.Embedding(VOCAB, d_model, padding_idx=PAD)
        self.pos_encoder = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, d_hid, dropout, batch_first=True, norm_first=True)
        self.transformer_encoder = nn.TransformerEncoder(layer, nlayers, enable_nested_tensor=False)
        self.linear = nn.Linear(d_model, 1)

    def forward(self, src, padding_mask):
        x = self.pos_encoder(self.embedding(src) * math.sqrt(self.d_model))
        x = self.transformer_encoder(x, src_key_padding_mask=padding_mask)
        return self.linear(x[:, 0]).squeeze(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=48)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--save-to", type=Path, default=None)
    args = parser.parse_args()
    torch.manual_seed(0)

    train_loader = DataLoader(PairsDataset(12000, 0), batch_size=args.batch_size, shuffle=True, collate_fn=collate_fn)
    val_loader = DataLoader(PairsDataset(500, 1), batch_size=100, collate_fn=collate_fn)
    model = Classifier()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)

    step, running = 0, []
    while step < args.steps:
        model.train()
        for src, padding_mask, labels in train_loader:
            loss = criterion(model(src, padding_mask), labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            running.append(loss.item())
            step += 1
            if step % 25 == 0:
                print(f"step {step:4d} | loss {sum(running) / len(running):.4f}")
                running = []
            if step >= args.steps:
                break
        model.eval()
        with torch.no_grad():
            hits = sum(((model(s, m) > 0) == (y > 0.5)).sum().item() for s, m, y in val_loader)
        print(f"validation accuracy {hits / len(val_loader.dataset):.3f}")
    folder = args.save_to or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), folder / "model.pt")


if __name__ == "__main__":
    main()
