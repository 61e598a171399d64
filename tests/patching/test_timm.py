"""Only where timm is installed: it needs torchvision, which has no build for every machine."""

from __future__ import annotations

import pytest
import torch

import eureka

timm = pytest.importorskip("timm", reason="timm is not installed")


@pytest.mark.parametrize("fused", [True, False])
def test_a_vision_transformer_of_timm_is_patched_fused_or_not(fused: bool) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5).eval()
    for block in model.blocks:
        block.attn.fused_attn = fused
    x = torch.randn(2, 3, 32, 32)
    plain = model(x)
    with eureka.patch(model, "softmax") as patched:
        assert [site.name for site in patched.sites] == ["blocks.0.attn", "blocks.1.attn"]
        torch.testing.assert_close(model(x), plain, rtol=1e-4, atol=1e-5)
    with eureka.patch(model, "norm_softmax"):
        assert not torch.allclose(model(x), plain)
    assert torch.equal(model(x), plain)
