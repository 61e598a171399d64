"""Only where diffusers is installed. Last passed with diffusers 0.42.1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import eureka

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed")

Case = tuple[Any, dict[str, Any], int]
"""A small model, its inputs, and how many sites it has."""


def noise(*shape: int) -> Tensor:
    return torch.randn(2, *shape)


def steps() -> Tensor:
    return torch.tensor([3, 3])


def unet_with_text() -> Case:
    model = diffusers.UNet2DConditionModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=16,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=32,
    )
    return model, {"sample": noise(4, 16, 16), "timestep": steps(), "encoder_hidden_states": noise(5, 32)}, 8


def unet() -> Case:
    model = diffusers.UNet2DModel(
        block_out_channels=(32, 64),
        layers_per_block=1,
        sample_size=16,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    return model, {"sample": noise(3, 16, 16), "timestep": steps()}, 4


def dit() -> Case:
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, num_embeds_ada_norm=10
    )
    return model, {"hidden_states": noise(4, 8, 8), "timestep": steps(), "class_labels": torch.tensor([1, 2])}, 2


def pixart() -> Case:
    model = diffusers.PixArtTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        num_layers=2,
        cross_attention_dim=16,
        sample_size=8,
        caption_channels=16,
        use_additional_conditions=False,
    )
    inputs = {"hidden_states": noise(4, 8, 8), "timestep": steps(), "encoder_hidden_states": noise(5, 16)}
    return model, {**inputs, "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}, 4


def stable_diffusion_3() -> Case:
    model = diffusers.SD3Transformer2DModel(
        sample_size=8,
        patch_size=1,
        in_channels=4,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        caption_projection_dim=16,
        joint_attention_dim=16,
        pooled_projection_dim=16,
    )
    inputs = {"hidden_states": noise(4, 8, 8), "timestep": steps(), "encoder_hidden_states": noise(5, 16)}
    return model, {**inputs, "pooled_projections": noise(16)}, 2


def flux() -> Case:
    model = diffusers.FluxTransformer2DModel(
        in_channels=4,
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8],
    )
    inputs = {"hidden_states": noise(16, 4), "encoder_hidden_states": noise(5, 32), "pooled_projections": noise(32)}
    return model, {**inputs, "timestep": torch.ones(2), "img_ids": torch.randn(16, 3), "txt_ids": torch.randn(5, 3)}, 2


@pytest.mark.filterwarnings("ignore")  # of the models
@pytest.mark.parametrize("make", [unet_with_text, unet, dit, pixart, stable_diffusion_3, flux])
def test_a_model_of_diffusers_is_patched_at_every_site(make: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    model, inputs, sites = make()
    model.eval()

    def out() -> Tensor:
        with torch.no_grad():
            found: Tensor = model(**inputs, return_dict=False)[0]
        return found

    plain = out()
    with eureka.patch(model, "softmax") as patched:
        assert len(patched.sites) == sites
        torch.testing.assert_close(out(), plain, rtol=1e-4, atol=1e-5)
    for site in range(sites):
        with eureka.patch(model, "norm_softmax", layers=site):
            assert not torch.allclose(out(), plain)
    assert torch.equal(out(), plain)
