"""What a patch and a probe cost Hugging Face's models: ``python -m benchmarks.patched [--json]``"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from benchmarks.command import start
from eureka.bench.model_steps import MODELS, StepCost, step_costs
from eureka.cli.bench import say
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table


def run(models: Sequence[str] = MODELS, rounds: int = 6, progress: Callable[[str], None] = lambda line: None) -> list[StepCost]:
    """Every model, without and with padded samples."""
    torch.set_num_threads(1)
    costs: list[StepCost] = []
    for name in models:
        for padded in (False, True):
            progress(f"{name}{', padded' if padded else ''}")
            costs += step_costs(name, padded, rounds)
    return costs


def main(json: JsonOption = False) -> None:
    """A training step of Hugging Face's RoBERTa and GPT-2, patched or probed, beside the same step without."""
    costs = run(progress=say)
    if json:
        print_json({"rows": [asdict(cost) for cost in costs]})
        return
    print_table(
        ["model", "padded", "with", "× unpatched"],
        [(cost.model, "yes" if cost.padded else "no", cost.what, f"{cost.vs_unpatched:.2f}") for cost in costs],
    )


if __name__ == "__main__":
    start(main)
