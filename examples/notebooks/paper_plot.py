# %% [markdown]
# # The paper's plot, small
#
# [Eureka-Moments in Transformers](https://arxiv.org/abs/2310.12956) shows training curves that sit at the level of who
# has learned only the last step of a task, and then leap. This draws the same for the two-step task on real handwritten
# digits, at the scale of one core: plain softmax and NormSoftmax, three seeds each. `small/main` is the paper's own
# task (`eureka data fetch mnist fashion_mnist` brings its pictures).

# %%
from pathlib import Path

import eureka

RECIPE = "digits"
STEPS = 2000
SEEDS = 3

# %%
curves = {}
for fix in ("softmax", "norm_softmax"):
    for seed in range(SEEDS):
        length = {"training.steps": STEPS, "training.warmup": STEPS // 10}
        config = eureka.recipe(RECIPE).but({"attention.name": fix, "training.seed": seed, **length})
        result = eureka.run(config, f"runs/paper_plot/{fix}-{seed}")
        curves[fix, seed] = [(line.step, line.validation_accuracy) for line in result.folder.metrics()]
        print(fix, "seed", seed, "→ Eureka-step", result.eureka_step)

# %% [markdown]
# The dashed line is theory: the accuracy of a predictor that can classify both targets and does not know which of them counts.

# %%
import matplotlib.pyplot as plt

level = result.folder.levels()[0]
figure, axes = plt.subplots(figsize=(7, 4))
for (fix, seed), points in curves.items():
    colour = "tab:gray" if fix == "softmax" else "tab:blue"
    axes.plot(*zip(*points, strict=True), color=colour, label=fix if seed == 0 else None)
axes.axhline(level.accuracy, linestyle="--", color="black", label=f"knows {level.knows}")
axes.set(xlabel="step", ylabel="validation accuracy", ylim=(0, 1))
axes.legend()
figure.savefig("paper_plot.png")
print(Path("paper_plot.png").stat().st_size, "bytes")
