"""A variational autoencoder on 8x8 digits."""

import argparse
import os
import tempfile

import torch
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser(description="VAE digits example")
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--log-interval", type=int, default=20)
parser.add_argument("--results", default=None, help="directory for samples")
args = parser.parse_args()
torch.manual_seed(args.seed)
device = torch.device("cpu")

digits = torch.tensor(load_digits().images, dtype=torch.float32).view(-1, 64) / 16.0
train_loader = DataLoader(TensorDataset(digits[:1500]), batch_size=args.batch_size, shuffle=True)
test_loader = DataLoader(TensorDataset(digits[1500:]), batch_size=args.batch_size, shuffle=False)


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 64)
        self.fc21 = nn.Linear(64, 8)
        self.fc22 = nn.Linear(64, 8)
        self.fc3 = nn.Linear(8, 64)
        self.fc4 = nn.Linear(64, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=2e-3)
global_step = 0


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def train(epoch):
    global global_step
    model.train()
    for (data,) in train_loader:
        data = data.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        optimizer.step()
        if global_step % args.log_interval == 0:
            print(f"Train Epoch: {epoch} Step: {global_step} Loss: {loss.item() / len(data):.6f}")
        global_step += 1
        if global_step >= args.steps:
            return


def test():
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for (data,) in test_loader:
            recon_batch, mu, logvar = model(data)
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
    print(f"====> Test set loss: {test_loss / len(test_loader.dataset):.4f}")


if __name__ == "__main__":
    epoch = 1
    while global_step < args.steps:
        train(epoch)
        if epoch % 5 == 0:
            test()
        epoch += 1
    test()
    with torch.no_grad():
        sample = model.decode(torch.randn(16, 8)).view(16, 8, 8)
    results = args.results or tempfile.mkdtemp()
    os.makedirs(results, exist_ok=True)
    torch.save(sample, os.path.join(results, "sample.pt"))
