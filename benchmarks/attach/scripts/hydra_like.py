"""
A training script whose entry is a decorator that reads `key=value` overrides from the command line:

    python hydra_like.py steps=200 optim.lr=1e-3 model.hidden=32
"""

import functools
import sys
import tempfile
from ast import literal_eval
from pathlib import Path
from types import SimpleNamespace

import torch
from sklearn.datasets import make_moons
from torch import nn

CONFIG = {
    "seed": 42,
    "steps": 300,
    "data": {"n": 1000, "noise": 0.15, "batch_size": 32},
    "model": {"hidden": 32, "depth": 2},
    "optim": {"_target_": "torch.optim.Adam", "lr": 5e-3},
    "log_every": 20,
    "output_dir": None,
}


def to_namespace(config):
    return SimpleNamespace(**{k: to_namespace(v) if isinstance(v, dict) else v for k, v in config.items()})


def parse_value(value):
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def config_main(config):
    def decorator(task_function):
        @functools.wraps(task_function)
        def decorated_main():
            for override in sys.argv[1:]:
                dotted, value = override.split("=", 1)
                *parents, leaf = dotted.split(".")
                node = config
                for parent in parents:
                    node = node[parent]
                if leaf not in node:
                    raise KeyError(f"could not override {dotted!r}: no such key")
                node[leaf] = parse_value(value)
            return task_function(to_namespace(config))

        return decorated_main

    return decorator


def instantiate(node, *args):
    settings = dict(vars(node))
    module, _, name = settings.pop("_target_").rpartition(".")
    return getattr(sys.modules[module], name)(*args, **settings)


def build_model(cfg):
    layers, width = [], 2
    for _ in range(cfg.depth):
        layers += [nn.Linear(width, cfg.hidden), nn.Tanh()]
        width = cfg.hidden
    return nn.Sequential(*layers, nn.Linear(width, 1))


@config_main(CONFIG)
def main(cfg):
    torch.manual_seed(cfg.seed)
    x, y = make_moons(cfg.data.n, noise=cfg.data.noise, random_state=cfg.seed)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    model = build_model(cfg.model)
    optimizer = instantiate(cfg.optim, model.parameters())
    criterion = nn.BCEWithLogitsLoss()

    for step in range(cfg.steps):
        idx = torch.randint(len(x), (cfg.data.batch_size,))
        logits = model(x[idx]).squeeze(1)
        loss = criterion(logits, y[idx])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % cfg.log_every == 0:
            print(f"[step {step}] train/loss={loss.item():.4f}")

    with torch.no_grad():
        logits = model(x).squeeze(1)
    print(f"final loss={criterion(logits, y).item():.4f} accuracy={((logits > 0) == (y > 0.5)).float().mean().item():.4f}")
    output_dir = Path(cfg.output_dir or tempfile.mkdtemp())
    output_dir.mkdir(parents=True, exist_ok=True)
    torch.save(model.state_dict(), output_dir / "weights.pt")


if __name__ == "__main__":
    main()
