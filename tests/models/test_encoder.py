"""The encoder against torch's own layers, the paper's count of parameters and its initialisation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eureka.attention.operator import Operator, make_operator
from eureka.errors import RequestError
from eureka.models.block import Block
from eureka.models.embedding import PatchEmbedding, embedding
from eureka.models.encoder import Encoder, EncoderSettings
from eureka.models.registry import MODELS


def softmax(heads: int, head_dim: int) -> Operator:
    return make_operator("softmax", heads=heads, head_dim=head_dim)


def encoder(input_shape: tuple[int, ...] = (16, 8), classes: int = 10, **settings: Any) -> Encoder:
    torch.manual_seed(0)
    return Encoder(input_shape, classes, softmax, settings=EncoderSettings(**settings))


def torch_layer(block: Block, dim: int, heads: int) -> nn.TransformerEncoderLayer:
    """Torch's own pre-norm layer with the weights of ours."""
    layer = nn.TransformerEncoderLayer(
        dim, heads, block.up.out_features, dropout=0.0, activation="gelu", layer_norm_eps=1e-6, batch_first=True, norm_first=True
    )
    q, k, v = block.attention.qkv.weight.chunk(3)
    state = {
        "self_attn.in_proj_weight": torch.cat([q, k, v]),
        "self_attn.in_proj_bias": torch.zeros(3 * dim),
        **{f"self_attn.out_proj.{name}": value for name, value in block.attention.out.state_dict().items()},
        **{f"linear1.{name}": value for name, value in block.up.state_dict().items()},
        **{f"linear2.{name}": value for name, value in block.down.state_dict().items()},
        **{f"norm1.{name}": value for name, value in block.norm1.state_dict().items()},
        **{f"norm2.{name}": value for name, value in block.norm2.state_dict().items()},
    }
    layer.load_state_dict(state)
    return layer


def randomised(model: nn.Module) -> nn.Module:
    """Larger weights and biases than at the start, so that nothing is hidden by being small."""
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def test_a_block_is_torch_s_pre_norm_layer() -> None:
    torch.manual_seed(1)
    block = Block(32, 4, softmax(4, 8))
    randomised(block)
    x = torch.randn(3, 7, 32)
    torch.testing.assert_close(block(x), torch_layer(block, 32, 4)(x), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("readout", ["cls", "mean"])
def test_the_encoder_is_embedding_positions_blocks_norm_and_readout(readout: str) -> None:
    model = encoder(dim=32, heads=4, depth=2, readout=readout)
    randomised(model)
    inputs = torch.randn(3, 16, 8)
    project: Any = model.embed.project
    x = inputs @ project.weight.T + project.bias
    if readout == "cls":
        assert model.cls is not None
        x = torch.cat([model.cls.repeat(3, 1, 1), x], dim=1)
    x = x + model.positions
    for block in model.blocks:
        assert isinstance(block, Block)
        x = torch_layer(block, 32, 4)(x)
    x = F.layer_norm(x, (32,), model.norm.weight, model.norm.bias, eps=1e-6)
    x = x[:, 0] if readout == "cls" else x.mean(dim=1)
    torch.testing.assert_close(model(inputs), x @ model.head.weight.T + model.head.bias, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("patch", [(4, 4), (7, 14), (14, 28)])
def test_patches_are_a_convolution_with_their_own_stride(patch: tuple[int, int]) -> None:
    torch.manual_seed(2)
    embed = PatchEmbedding(3, 56, 56, patch, 8)
    pictures = torch.randn(2, 3, 56, 56)
    kernel = embed.project.weight.reshape(8, 3, *patch)
    convolved: Tensor = F.conv2d(pictures, kernel, embed.project.bias, stride=patch)
    assert embed.tokens == (56 // patch[0]) * (56 // patch[1])
    torch.testing.assert_close(embed(pictures), convolved.flatten(2).transpose(1, 2), atol=1e-5, rtol=1e-5)


def test_it_has_the_parameters_that_the_paper_reports() -> None:
    model = encoder((3, 56, 56), 10, dim=256, depth=7, heads=4, mlp_ratio=2.0, patch=4)
    count = sum(parameter.numel() for parameter in model.parameters())
    assert round(count / 1e6, 2) == 3.75
    assert model.positions.shape == (1, 197, 256)


def test_weights_start_as_truncated_normal_and_biases_as_zero() -> None:
    model = encoder((3, 56, 56), 10, dim=128, depth=2, heads=4)
    for module in model.modules():
        if isinstance(module, nn.Linear) and module.weight.numel() > 4_000:
            assert module.weight.std().item() == pytest.approx(0.02, rel=0.05)
            assert abs(module.weight.mean().item()) < 0.002
            if module.bias is not None:
                assert not module.bias.any()
        if isinstance(module, nn.LayerNorm):
            assert module.eps == 1e-6
            assert bool((module.weight == 1).all())
    assert model.positions.std().item() == pytest.approx(0.02, rel=0.05)
    assert all(block.attention.qkv.bias is None for block in model.blocks)  # type: ignore[union-attr]


def test_what_is_exempt_from_weight_decay_are_parameters_it_has() -> None:
    names = {name for name, _ in encoder().named_parameters()}
    assert names >= Encoder.undecayed


def test_the_same_seed_gives_the_same_weights() -> None:
    first, again = encoder(), encoder()
    for a, b in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_patch_that_does_not_divide_the_picture_is_told() -> None:
    with pytest.raises(RequestError, match="5×5 does not divide a picture of 56×56"):
        embedding((3, 56, 56), 5, 8)


def test_heads_that_do_not_divide_the_width_are_told() -> None:
    with pytest.raises(RequestError, match=r"model.dim \(10\) must be a multiple of model.heads \(3\)"):
        MODELS.choose("encoder", {"dim": 10, "heads": 3})


def test_the_registry_builds_it_and_checks_its_settings() -> None:
    model = MODELS.build("encoder", {"dim": 16}, input_shape=(4, 3), classes=7, make_attention=softmax)
    assert model(torch.zeros(2, 4, 3)).shape == (2, 7)
    with pytest.raises(RequestError, match="did you mean 'depth'"):
        MODELS.choose("encoder", {"dept": 2})
