"""A transformer from torch.nn learns sums over a moving window, in a loop of its own.

    python examples/torch_window_sum.py                      # plain softmax
    python examples/torch_window_sum.py --fix norm_softmax   # the same, with another attention

Which numbers to add is the hidden step: until attention finds it, the loss stays where copying alone gets. With seed 0 plain
softmax leaps at step 1,171, NormSoftmax at 946, and linear attention not within 1,500; half a minute each on one core. One seed
says little of which is better, and the start matters: with torch.nn's own N(0, 1) embeddings instead of the small ones used here,
plain softmax had not learned the task after 2,500 steps.
"""

from __future__ import annotations

import argparse
import sys

import torch
from torch import Tensor, nn

import eureka
from eureka.integrations.monitor import Monitor
from eureka.tasks.registry import TASKS


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Causal(nn.Module):
    """Tokens and positions, layers of torch.nn that see no later token, a linear read-out."""

    def __init__(self, words: int, length: int, classes: int, dim: int = 64, heads: int = 1, depth: int = 1) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, dim), nn.Parameter(0.02 * torch.randn(length, dim))
        layer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(dim), enable_nested_tensor=False)
        self.head = nn.Linear(dim, classes)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions
        return self.head(self.layers(x, mask=self.mask, is_causal=True))  # type: ignore[no-any-return]


def main(arguments: list[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fix", default="softmax", help="the attention; `eureka fixes` lists what there is")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)

    task = TASKS.build("window_sum")
    torch.manual_seed(options.seed)
    model = Causal(task.vocabulary, task.input_shape[0], task.classes)
    patched = eureka.patch(model, options.fix, total_steps=options.steps)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(options.seed)
    say(f"patched {[site.name for site in patched.sites]} with {options.fix}; the shortcut's loss is {task.shortcut_loss():.2f}")
    accuracy = 0.0
    with Monitor(model, every=250, patched=patched) as monitor:
        for step in range(options.steps):
            batch = task.sample(64, generator)
            outputs = model(batch.inputs)
            loss = task.loss(outputs, batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            if event := monitor.update(step, loss.item()):
                what = "a plateau" if event.moment is None else f"a Eureka-moment at step {event.moment.steepest:,.0f}"
                say(f"step {step:,}: {what}")
            accuracy = task.accuracy(outputs, batch).item()
    for record in monitor.records:
        site = record.sites[0]
        say(f"step {record.step:5,}: entropy {site.mean('entropy'):.3f}, q and k gradients to v's {site.mean('grad_ratio'):.3f}")
    say(f"accuracy in the end {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
