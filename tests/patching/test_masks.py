"""Padding reaches the operators: in the masks that a model makes, and in those that an attention module asks for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.patching.hugging_face import NAME, register

transformers = pytest.importorskip("transformers")
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, create_bidirectional_mask  # noqa: E402
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

B, N, E, H, SHORT = 3, 7, 16, 2, 4
FIXES = ["softmax", "norm_softmax", "norm_softmax_var", "linear", "sigmoid"]
"""Not sinkhorn: it balances over queries too, and padding is hidden from them as keys only."""


class AsksForItsMask(nn.Module):
    """An attention module in the manner of transformers that is given the padding and asks for the mask by its own config."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config, self.num_heads, self.is_causal = config, H, False
        self.query, self.key, self.value = (nn.Linear(E, E) for _ in range(3))

    def forward(self, x: Tensor, padding: Tensor | None = None) -> Tensor:
        mask = create_bidirectional_mask(self.config, x, padding)
        q, k, v = (layer(x).unflatten(-1, (H, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value))
        attend = ALL_ATTENTION_FUNCTIONS[self.config._attn_implementation]
        mixed: Tensor = attend(self, q, k, v, mask)[0].flatten(2)
        return mixed


@pytest.fixture
def module() -> AsksForItsMask:
    torch.manual_seed(0)
    config = transformers.BertConfig(hidden_size=E, num_attention_heads=H, attn_implementation="sdpa")
    return AsksForItsMask(config).eval()


def padded() -> tuple[Tensor, Tensor]:
    x = torch.randn(B, N, E, generator=torch.Generator().manual_seed(1))
    padding = torch.ones(B, N, dtype=torch.long)
    padding[1, SHORT:] = 0
    return x, padding


def padding_shows(module: nn.Module) -> bool:
    """Whether a padded sample comes out differently from the same sample alone."""
    x, padding = padded()
    together, alone = module(x, padding)[1, :SHORT], module(x[1:2, :SHORT])[0]
    return not torch.allclose(together, alone, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fix", FIXES)
def test_a_module_that_asks_for_its_own_mask_gets_one(module: AsksForItsMask, fix: str) -> None:
    assert not padding_shows(module)
    with eureka.patch(module, fix):
        assert not padding_shows(module)


def test_without_our_masks_among_those_of_transformers_the_padding_would_be_looked_at(
    module: AsksForItsMask, monkeypatch: pytest.MonkeyPatch
) -> None:
    register()
    monkeypatch.delitem(ALL_MASK_ATTENTION_FUNCTIONS._global_mapping, NAME)
    with eureka.patch(module, "norm_softmax"):
        assert padding_shows(module)


@pytest.mark.parametrize("fix", FIXES)
def test_a_padded_batch_gives_what_each_sample_gives_alone(fix: str) -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": E, "vocab_size": 30}
    model = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False).eval()
    ids, (_, padding) = torch.randint(3, 30, (B, N), generator=torch.Generator().manual_seed(2)), padded()
    with eureka.patch(model, fix):
        together = model(input_ids=ids, attention_mask=padding).last_hidden_state
        for row, length in enumerate(padding.sum(dim=1).tolist()):
            alone = model(input_ids=ids[row : row + 1, :length]).last_hidden_state[0]
            torch.testing.assert_close(together[row, :length], alone, rtol=1e-4, atol=1e-5)
