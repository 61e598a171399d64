# %% [markdown]
# # Diagnose a log
#
# You have a loss curve and nothing else. Where did it sit still, where did it fall, and was that a Eureka-moment? Nothing here
# needs torch.

# %%
from pathlib import Path

import numpy as np

import eureka

# %% [markdown]
# A log as a training script would write it: the loss waits at 2.0, a step of the learning rate at 300 lets it fall a little, and
# at 900 it leaps.

# %%
steps = np.arange(1500)
noise = np.random.default_rng(0).normal(0, 0.02, len(steps))
losses = 2.0 - 0.1 * (steps > 300) - 1.4 / (1 + np.exp(-(steps - 900) / 15)) + noise
rates = np.where(steps > 300, 1e-4, 1e-3)
rows = [f"{step},{loss:.4f},{rate:g}" for step, loss, rate in zip(steps, losses, rates, strict=True)]
Path("loss.csv").write_text("step,loss,lr\n" + "\n".join(rows) + "\n")

# %% [markdown]
# `read_log` finds out which column is what. `detect` is told the learning rate, so that it can tell the two falls apart.

# %%
curve = eureka.read_curve("loss.csv")
print(curve.metric, "by", curve.step_name, curve.points, "points")
for moment in eureka.detect(curve.values, curve.steps, lr=rates):
    fall = f"{moment.before:.2f} → {moment.after:.2f} at step {moment.steepest:.0f}"
    print(f"{moment.kind}: {fall}, confidence {moment.confidence:.2f}")

# %% [markdown]
# A log that only waits has a plateau and no moment:

# %%
for plateau in eureka.find_plateaus(losses[:280]):
    print(f"sat at {plateau.level:.2f} from step {plateau.start:.0f} to {plateau.end:.0f}")

# %% [markdown]
# While a run is going on, `OnlineDetector` takes one loss at a time. It is not told the learning rate, so the first fall is a
# moment to it, too:

# %%
detector = eureka.OnlineDetector()
for step, loss in zip(steps, losses, strict=True):
    if (event := detector.update(int(step), float(loss))) is not None:
        print("step", event.step, event.name)

# %% [markdown]
# On the command line all of this is `eureka detect loss.csv`, with a picture: `eureka detect loss.csv --html page.html`.
