"""Only where timm is installed: it needs torchvision, which has no build for every machine. Last passed with timm 1.0.30."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import eureka

timm = pytest.importorskip("timm", reason="timm is not installed")

SMALL = {"img_size": 32, "depth": 2, "num_classes": 5}
ABSENT = "no learned positions: those of"


def rms(x: Tensor) -> float:
    return math.sqrt(x.detach().double().square().mean().item())


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"])
def test_ratio_and_spread_are_what_was_asked(name: str, fused: bool) -> None:
    torch.manual_seed(0)
    model, x = timm.create_model(name, **SMALL).eval(), torch.randn(4, 3, 32, 32)
    for block in model.blocks:
        block.attn.fused_attn = fused
    before = {key: value.clone() for key, value in model.state_dict().items()}
    start = eureka.clear_start(model, x, positions=0.5, logits=2.0)
    first = [token.expand(4, -1, -1) for token in (model.cls_token, getattr(model, "dist_token", None)) if token is not None]
    content = torch.cat([*first, model.patch_embed(x)], dim=1)
    assert rms(model.pos_embed) / rms(content) == pytest.approx(0.5, rel=0.01)
    attention, seen = model.blocks[0].attn, model.blocks[0].norm1(content + model.pos_embed)
    q, k, _ = attention.qkv(seen).unflatten(-1, (3, 3, -1)).permute(2, 0, 3, 1, 4)
    spreads = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).std(dim=-1, correction=0).mean(dim=(0, 2))
    assert spreads.tolist() == pytest.approx([2.0] * 3, rel=0.01)
    start.undo()
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(block.attn.fused_attn is fused for block in model.blocks)


@pytest.mark.parametrize(
    ("name", "settings", "size", "positions", "note"),
    [
        ("vit_small_patch16_rope_224", SMALL, 32, [], f"{ABSENT} Eva are rotary"),
        ("vit_small_patch16_rope_mixed_ape_224", SMALL, 32, ["pos_embed"], ""),
        ("eva02_tiny_patch14_224", {**SMALL, "img_size": 28}, 28, ["pos_embed"], ""),
        ("vit_relpos_small_patch16_224", SMALL, 32, [], f"{ABSENT} VisionTransformerRelPos are relative"),
        ("convit_tiny", SMALL, 32, ["pos_embed"], ""),
        ("pvt_v2_b0", {}, 64, [], "no learned positions were found in PyramidVisionTransformerV2"),
    ],
)
def test_positions_are_found_or_named(name: str, settings: dict[str, Any], size: int, positions: list[str], note: str) -> None:
    torch.manual_seed(0)
    model, x = timm.create_model(name, **settings), torch.randn(4, 3, size, size)
    start = eureka.clear_start(model, x)
    assert [row.parameters[0] for row in start.positions] == positions
    found = [row.after for row in start.positions] + [spread for row in start.logits for spread in row.after]
    assert found == pytest.approx([1.0] * len(found), rel=0.01)
    assert note in " ".join(start.notes)
