"""`eureka diagnose --fork`: the script's own loop goes on in forks at other rates, and forks leave nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

from eureka.capture.fork import RATES, STEPS, WAIT
from tests.capture.fork_server import eureka

AT, MADE = 5, 50
SCRIPT = f"""
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range({MADE}):
    x = torch.randn(32, 4)
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {{loss.item()!r}}")
    try:
        with open("steps.txt", "a") as file:
            file.write(f"{{step}}\\n")
    except PermissionError:
        print("not written")
print("ended")
"""


def test_the_arm_that_waits_has_the_losses_of_the_script_and_forks_write_nothing(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = eureka("diagnose", "--fork", "--at", AT, "--then", "go", "--json", "train.py", folder=tmp_path, TMPDIR=str(tmp_path))
    assert done.code == 0, done.errors
    forked = json.loads(done.output)["forked"]
    printed = [float(line.split()[1]) for line in done.errors.splitlines() if line.startswith("loss ")]
    assert len(printed) == MADE
    assert forked["losses"][WAIT] == printed[AT : AT + STEPS]
    assert list(forked["losses"]) == [WAIT, *RATES]
    assert None in forked["losses"]["rate_x100"]  # it diverges, and JSON has no infinity
    assert {len(losses) for losses in forked["losses"].values()} == {STEPS}
    assert len({losses[-1] for losses in forked["losses"].values()}) == 1 + len(RATES)
    assert (tmp_path / "steps.txt").read_text().split() == [str(step) for step in range(MADE)]
    assert "not written" not in done.errors
    assert done.errors.count("ended\n") == 1
    assert sorted(one.name for one in tmp_path.iterdir()) == ["steps.txt", "train.py"]
