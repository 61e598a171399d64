"""Residual convolutional networks (He et al. 2016): what has no plateau on the same pictures."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn

from eureka.errors import RequestError

STAGES = 4


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """relu(norm(conv(relu(norm(conv(x))))) + x), with a 1×1 convolution on the way around when the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = convolution(outputs, outputs, 3), nn.BatchNorm2d(outputs)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.around(x))


class ResNet(nn.Module):
    """A stem, four stages of basic blocks, each twice as wide and half as large as the one before, the mean, a linear head.

    The stem is that of ImageNet (7×7, stride 2, then a maximum over 3×3) or a 3×3 convolution for small pictures.
    """

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        *,
        blocks: PositiveInt = 2,
        width: PositiveInt = 64,
        stem: Literal["imagenet", "small"] = "imagenet",
    ) -> None:
        if len(input_shape) != 3:
            raise RequestError(f"a ResNet looks at pictures, not at inputs of shape {input_shape}; try model.name=encoder.")
        super().__init__()
        large = stem == "imagenet"
        self.stem = convolution(input_shape[0], width, 7 if large else 3, 2 if large else 1)
        self.norm = nn.BatchNorm2d(width)
        self.pool: nn.Module = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        widths = [width * 2**stage for stage in range(STAGES)]
        self.stages = nn.Sequential(*(self._stage(stage, widths, blocks) for stage in range(STAGES)))
        self.head = nn.Linear(widths[-1], classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    @staticmethod
    def _stage(stage: int, widths: list[int], blocks: int) -> nn.Sequential:
        first = BasicBlock(widths[max(stage - 1, 0)], widths[stage], 1 if stage == 0 else 2)
        return nn.Sequential(first, *(BasicBlock(widths[stage], widths[stage], 1) for _ in range(blocks - 1)))

    def forward(self, inputs: Tensor) -> Tensor:
        x = self.pool(F.relu(self.norm(self.stem(inputs))))
        return self.head(self.stages(x).mean(dim=(2, 3)))  # type: ignore[no-any-return]
