"""An MLP on the scikit-learn digits, everything at module level."""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=str, default=None)
args = parser.parse_args()

torch.manual_seed(args.seed)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

digits = load_digits()
images = digits.images / 16.0
x_train, x_test, y_train, y_test = train_test_split(images, digits.target, test_size=0.2, random_state=args.seed)
x_train = torch.tensor(x_train, dtype=torch.float32).to(device)
y_train = torch.tensor(y_train).to(device)
x_test = torch.tensor(x_test, dtype=torch.float32).to(device)
y_test = torch.tensor(y_test).to(device)

model = nn.Sequential(
    nn.Flatten(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 10),
).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

step = 0
epoch = 0
while step < args.steps:
    model.train()
    order = torch.randperm(len(x_train))
    for i in range(0, len(x_train), args.batch_size):
        idx = order[i : i + args.batch_size]
        optimizer.zero_grad()
        logits = model(x_train[idx])
        loss = F.cross_entropy(logits, y_train[idx])
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}")
        step += 1
        if step >= args.steps:
            break
    epoch += 1

model.eval()
with torch.no_grad():
    logits = model(x_test)
    test_loss = F.cross_entropy(logits, y_test)
    accuracy = (logits.argmax(dim=1) == y_test).float().mean()
print(f"test loss {test_loss:.4f} accuracy {accuracy:.4f}")

out = Path(args.out or tempfile.mkdtemp())
out.mkdir(parents=True, exist_ok=True)
torch.save(model.state_dict(), out / "model.pt")
print("saved to", out)
