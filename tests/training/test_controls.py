"""The sceptic's controls: other learning rates and another start for W_Q and W_K."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from eureka.config import RunConfig
from eureka.errors import RequestError
from eureka.experiment import build, run
from eureka.runs import RunFolder
from eureka.training.optimiser import QueryKeyRate


def split_and_fused(dim: int = 8) -> tuple[nn.ModuleList, nn.Linear]:
    """The same three projections, apart and as one weight."""
    torch.manual_seed(0)
    apart = nn.ModuleList(nn.Linear(dim, dim, bias=False) for _ in range(3))
    fused = nn.Linear(dim, 3 * dim, bias=False)
    with torch.no_grad():
        fused.weight.copy_(torch.cat(list(apart.parameters())))
    return apart, fused


class FusedAttention(nn.Module):
    def __init__(self, qkv: nn.Linear) -> None:
        super().__init__()
        self.qkv, self.num_heads = qkv, 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, -1).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def apart_attention(layers: nn.ModuleList, x: torch.Tensor) -> torch.Tensor:
    q, k, v = (layer(x).view(*x.shape[:2], 2, -1).transpose(1, 2) for layer in layers)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def test_a_fused_weight_learns_as_three_parameters_with_two_rates_would() -> None:
    apart, fused = split_and_fused()
    model = FusedAttention(fused)
    groups = [{"params": [apart[0].weight, apart[1].weight], "lr": 0.1}, {"params": [apart[2].weight], "lr": 0.01}]
    slow = torch.optim.AdamW(groups, weight_decay=0.3)
    fast = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.3)
    control = QueryKeyRate(model, 10.0)
    for step in range(5):
        x = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(step))
        for optimiser, output in ((slow, apart_attention(apart, x)), (fast, model(x))):
            optimiser.zero_grad()
            (output**2).sum().backward()
        slow.step()
        with control.around_step():
            fast.step()
    assert torch.allclose(fused.weight, torch.cat(list(apart.parameters())), atol=1e-5)


def test_a_scale_of_one_changes_nothing_at_all(tiny: RunConfig, tmp_path: Path) -> None:
    _, model = build(tiny)
    assert QueryKeyRate(model, 1.0).factors == {}


def test_the_scale_reaches_training(tiny: RunConfig, tmp_path: Path) -> None:
    run(tiny, tmp_path / "plain")
    run(tiny.but({"training.qk_lr_scale": 10}), tmp_path / "fast")
    plain, fast = (RunFolder(tmp_path / name).metrics() for name in ("plain", "fast"))
    assert plain[0].train_loss != fast[0].train_loss


def test_a_model_without_queries_is_refused() -> None:
    with pytest.raises(RequestError, match=r"training\.qk_lr_scale 10: this model has no W_Q and W_K"):
        QueryKeyRate(nn.Sequential(nn.Linear(3, 3)), 10.0)


def test_a_sharper_start_multiplies_the_first_logits_and_nothing_else(tiny: RunConfig) -> None:
    _, plain = build(tiny)
    _, sharp = build(tiny.but({"model.qk_init_scale": 9.0}))
    for (name, a), b in zip(plain.state_dict().items(), sharp.state_dict().values(), strict=True):
        if name.endswith("qkv.weight"):
            q, k, v = a.chunk(3)
            assert torch.allclose(b, torch.cat([3 * q, 3 * k, v]))
        else:
            assert torch.equal(a, b)


def test_larger_positions_are_larger_and_nothing_else(tiny: RunConfig) -> None:
    _, plain = build(tiny)
    _, large = build(tiny.but({"model.position_init_scale": 8.0}))
    for (name, a), b in zip(plain.state_dict().items(), large.state_dict().values(), strict=True):
        assert torch.equal(b, 8 * a if name == "positions" else a)
