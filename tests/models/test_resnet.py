"""The ResNet against Hugging Face's, and the number of parameters that everybody knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from eureka.models.registry import MODELS
from eureka.models.resnet import ResNet

transformers = pytest.importorskip("transformers", reason="transformers is not installed")


def convolutions(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if isinstance(module, nn.Conv2d)]


def their_resnet(blocks: int, width: int, classes: int) -> Any:
    config = transformers.ResNetConfig(
        embedding_size=width, hidden_sizes=[width, 2 * width, 4 * width, 8 * width], depths=[blocks] * 4, layer_type="basic",
        num_labels=classes,
    )  # fmt: skip
    return transformers.ResNetForImageClassification(config)


def give_weights(ours: ResNet, theirs: Any) -> None:
    """Ours to theirs, stage by stage; theirs keeps the way around before the branch."""
    stem = theirs.resnet.embedder.embedder
    copies = [(ours.stem, stem.convolution), (ours.norm, stem.normalization), (ours.head, theirs.classifier[1])]
    for stage, their_stage in zip(ours.stages, theirs.resnet.encoder.stages, strict=True):
        for block, layer in zip(stage, their_stage.layers, strict=True):  # type: ignore[call-overload]
            for number in (1, 2):
                part = layer.layer[number - 1]
                copies += [(getattr(block, f"conv{number}"), part.convolution)]
                copies += [(getattr(block, f"norm{number}"), part.normalization)]
            if not isinstance(block.around, nn.Identity):
                copies += [(block.around[0], layer.shortcut.convolution), (block.around[1], layer.shortcut.normalization)]
    for source, target in copies:
        target.load_state_dict(source.state_dict())


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("training", [False, True])
def test_it_is_hugging_face_s_resnet(blocks: int, training: bool, randomised: Callable[[nn.Module], None]) -> None:
    torch.manual_seed(0)
    ours, theirs = ResNet((3, 56, 56), 10, blocks=blocks, width=8), their_resnet(blocks, 8, 10)
    randomised(ours)
    assert len(convolutions(ours)) == len(convolutions(theirs))
    give_weights(ours, theirs)
    ours.train(training)
    theirs.train(training)
    pictures = torch.rand(4, 3, 56, 56)
    torch.testing.assert_close(ours(pictures), theirs(pictures).logits, atol=1e-3, rtol=1e-3)


def test_resnet18_has_the_parameters_everybody_knows() -> None:
    model = MODELS.build("resnet18", {}, input_shape=(3, 224, 224), classes=1000)
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_689_512


def test_resnet9_has_one_block_a_stage() -> None:
    model = MODELS.build("resnet9", {}, input_shape=(3, 56, 56), classes=10)
    main_path = [m for name, m in model.named_modules() if isinstance(m, nn.Conv2d) and "around" not in name]
    assert len(main_path) == 9
    assert model(torch.zeros(2, 3, 56, 56)).shape == (2, 10)


@pytest.mark.parametrize("side", [28, 16, 14])
def test_the_small_stem_keeps_small_pictures(side: int) -> None:
    model = ResNet((1, side, side), 10, blocks=1, width=8, stem="small")
    assert model.stem(torch.zeros(2, 1, side, side)).shape == (2, 8, side, side)
    assert model(torch.zeros(2, 1, side, side)).shape == (2, 10)


def test_convolutions_start_with_the_variance_of_he() -> None:
    model = ResNet((3, 56, 56), 10)
    for module in convolutions(model):
        assert isinstance(module, nn.Conv2d)
        fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
        if module.weight.numel() > 5_000:
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)
