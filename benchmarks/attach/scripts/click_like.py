"""
A command line of two commands:

    python click_like.py train --steps 200
    python click_like.py info
"""

import tempfile
from pathlib import Path

import click
import torch
from sklearn.datasets import load_wine
from torch import nn


class TabularNet(nn.Module):
    def __init__(self, n_features, n_classes, hidden=32, p=0.1):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(n_features, hidden),
            nn.LeakyReLU(),
            nn.Dropout(p),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(),
        )
        self.out = nn.Linear(hidden, n_classes)

    def forward(self, x):
        return self.out(self.body(x))


def load():
    wine = load_wine()
    x = torch.tensor(wine.data, dtype=torch.float32)
    x = (x - x.mean(dim=0)) / x.std(dim=0)
    return x, torch.tensor(wine.target)


@click.group(invoke_without_command=True)
@click.pass_context
def cli(ctx):
    if ctx.invoked_subcommand is None:
        ctx.invoke(train)


@cli.command()
@click.option("--steps", default=200, show_default=True, help="Optimiser steps.")
@click.option("--lr", default=1e-3, show_default=True)
@click.option("--batch-size", default=32, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=None, help="Where the weights go.")
@click.option("--verbose/--quiet", default=True)
def train(steps, lr, batch_size, seed, out, verbose):
    """Train a classifier of wines."""
    torch.manual_seed(seed)
    x, y = load()
    model = TabularNet(x.shape[1], 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    loss_fn = nn.CrossEntropyLoss()
    with click.progressbar(length=steps, hidden=verbose) as bar:
        for step in range(1, steps + 1):
            idx = torch.randperm(len(x))[:batch_size]
            loss = loss_fn(model(x[idx]), y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(1)
            if verbose and step % 20 == 0:
                click.echo(f"step {step:>4} loss {loss.item():.4f}")
    out = out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), out / "wine.pt")
    click.secho(f"done, final loss {loss.item():.4f}", fg="green")


@cli.command()
def info():
    """Say what the data are."""
    x, y = load()
    click.echo(f"{len(x)} wines, {x.shape[1]} features, classes {torch.bincount(y).tolist()}")


if __name__ == "__main__":
    cli()
