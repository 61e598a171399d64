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
from eureka.recipes import recipe
from eureka.runs import RunFolder
from eureka.starts.clear_start import clear_start
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


def measured(config: RunConfig) -> tuple[list[float], list[float]]:
    """Ratios of positions to content, and row spreads of the logits, on other samples than the start was made from."""
    task, model = build(config)
    inputs = task.sample(512, torch.Generator().manual_seed(5)).inputs
    start = clear_start(model, inputs)
    return [row.before for row in start.positions], [value for row in start.logits for value in row.before]


@pytest.mark.parametrize("fix", ["softmax", "norm_softmax"])
def test_a_clear_start_has_the_ratio_and_the_spread_that_it_names(tiny: RunConfig, fix: str) -> None:
    config = tiny.but({"attention.name": fix, "model.depth": 2})
    paper, positions, clear = (measured(config.but({"model.start": s})) for s in ("paper", "clear_positions", "clear"))
    assert max(paper[0]) < 0.5
    assert max(paper[1]) < 0.5
    assert positions[0] == clear[0] == pytest.approx([1.0], rel=0.1)
    assert max(positions[1]) < 0.5
    assert clear[1] == pytest.approx([1.0] * 4, rel=0.1)


def test_a_start_changes_lengths_alone_and_leaves_the_random_numbers_of_training(tiny: RunConfig) -> None:
    drawn = dict(build(tiny)[1].named_parameters())
    state = torch.get_rng_state()
    for name, parameter in build(tiny.but({"model.start": "clear"}))[1].named_parameters():
        if name == "positions":
            assert F.cosine_similarity(parameter.flatten(), drawn[name].flatten(), dim=0).item() == pytest.approx(1)
            assert not torch.equal(parameter, drawn[name])
        elif not name.endswith("qkv.weight"):
            assert torch.equal(parameter, drawn[name])
    assert torch.equal(torch.get_rng_state(), state)


def test_the_papers_start_is_the_default_and_keeps_the_name_of_a_run(tiny: RunConfig) -> None:
    assert tiny.but({"model.start": "paper"}).digest() == tiny.digest()
    assert tiny.but({"model.start": "clear"}).digest() != tiny.digest()


def test_hugging_faces_models_start_clear_too() -> None:
    pytest.importorskip("transformers")
    config = recipe("hf/gpt2_regression").but({"model.start": "clear", "model.depth": 1, "attention.name": "norm_softmax"})
    ratios, spreads = measured(config)
    assert ratios == pytest.approx([1.0], rel=0.1)
    assert spreads == pytest.approx([1.0, 1.0], rel=0.1)


def test_a_run_keeps_what_its_start_rescaled(tiny: RunConfig, tmp_path: Path) -> None:
    assert run(tiny, tmp_path / "paper").folder.start() is None
    record = run(tiny.but({"model.start": "clear"}), tmp_path / "clear").folder.start()
    assert record is not None
    assert record.start == "clear"
    assert [one.name for one in record.positions] == ["positions"]
    assert [value for one in (*record.positions, *record.logits) for value in one.after] == pytest.approx([1.0] * 3, rel=0.01)
    assert max(record.positions[0].before) < 0.5
