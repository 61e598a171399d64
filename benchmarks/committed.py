"""The studies that are committed under results/: each as its runs, the configs from its file and the outcomes from its table."""

from __future__ import annotations

from pathlib import Path

from eureka.runs import Run, RunFolder, StoredConfig
from eureka.study.plan import read_plan, run_name
from eureka.study.summary import read_outcomes

RESULTS = Path(__file__).parents[1] / "results"
STUDIES = {
    "tiles": "tiles/study.yaml",
    "chain": "chain/study.yaml",
    "every_rate/tiles": "every_rate/tiles.yaml",
    "every_rate/digits": "every_rate/digits.yaml",
    "every_rate/main": "every_rate/main.yaml",
    "every_rate/resnet": "every_rate/resnet.yaml",
    "every_rate/moving": "every_rate/moving.yaml",
    "every_rate/chains": "every_rate/chains.yaml",
    "every_rate/eight_tokens": "every_rate/eight_tokens.yaml",
    "every_rate/longer": "every_rate/longer.yaml",
    "every_rate/longest": "every_rate/longest.yaml",
    "every_rate/wider": "every_rate/wider.yaml",
    "every_rate/paper_scale": "every_rate/paper_scale.yaml",
    "every_rate/to_the_end": "every_rate/to_the_end.yaml",
    "every_rate/new_seeds/main": "every_rate/new_seeds/main.yaml",
    "every_rate/new_seeds/moving": "every_rate/new_seeds/moving.yaml",
    "window_sum": "window_sum/study.yaml",
    "in_context/induction": "in_context/induction.yaml",
    "in_context/gpt2_induction": "in_context/gpt2_induction.yaml",
    "in_context/regression": "in_context/regression.yaml",
    "in_context/gpt2_regression": "in_context/gpt2_regression.yaml",
    "language/masked_text": "language/masked_text.yaml",
    "language/to_the_end": "language/to_the_end.yaml",
    "language/roberta": "language/roberta.yaml",
}
"""The folder of each committed table, and the study's file."""


def committed_runs(name: str) -> list[Run]:
    """The runs of a study; a run has its name from its config."""
    configs = {run_name(config): config for config in read_plan(RESULTS / STUDIES[name], Path("unused")).configs}
    outcomes = read_outcomes(RESULTS / name / "runs.csv")
    return [Run(RunFolder(Path(run)), StoredConfig(configs[run].to_json()), outcome) for run, outcome in outcomes.items()]
