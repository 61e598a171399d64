"""Only where timm is installed: it needs torchvision, which has no build for every machine. Last passed with timm 1.0.30."""

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


@pytest.mark.parametrize(
    ("name", "sites"), [("swin_tiny_patch4_window7_224", 12), ("tiny_vit_5m_224", 10), ("twins_svt_small", 18), ("pvt_v2_b0", 8)]
)
def test_windows_and_their_biases_are_patched_too(name: str, sites: int) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=3).eval()
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        plain = model(x)
        with eureka.patch(model, "softmax") as patched:
            assert len(patched.sites) == sites
            torch.testing.assert_close(model(x), plain, rtol=1e-4, atol=1e-5)
        assert torch.equal(model(x), plain)


@pytest.mark.parametrize("fused", [True, False])
def test_a_probe_splits_the_weight_of_q_k_and_v(fused: bool) -> None:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=5)
    model.blocks[0].attn.fused_attn = fused
    with eureka.AttentionProbe(model) as probe:
        model(torch.randn(2, 3, 32, 32)).square().sum().backward()
        probe.step()
    gradient = model.blocks[0].attn.qkv.weight.grad.abs().unflatten(0, (3, 3, -1)).mean(dim=(2, 3))  # q, k, v; three heads
    values = probe.records[0].sites[0].values
    for row, letter in zip(gradient.tolist(), "qkv", strict=True):
        assert values[f"grad_{letter}"] == pytest.approx(row, rel=1e-5)
    assert model.blocks[0].attn.fused_attn is fused


def test_attention_that_writes_its_softmax_out_is_followed() -> None:
    torch.manual_seed(0)
    model, x = timm.create_model("swinv2_tiny_window8_256", num_classes=3).eval(), torch.randn(2, 3, 256, 256)
    plain = model(x)
    with eureka.patch(model, "softmax") as patched:
        assert {site.kind for site in patched.sites} == {"by_hand"}
        torch.testing.assert_close(model(x), plain, rtol=1e-4, atol=1e-4)
