"""The checks of this folder can fail: broken masks, broken causal statistics and a broken undo are noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.attention.explicit import logits_of, masked_softmax, mix
from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, NoMask
from eureka.attention.norm_softmax import NormSoftmax
from eureka.errors import WorkError
from eureka.patching import attach, hugging_face, masks


def differs(it: Any, explicitly: Callable[[nn.Module], None], operator: Any = "norm_softmax") -> bool:
    """Whether the comparison with the explicit formula notices something."""
    with eureka.patch(it.model, operator, check=False):
        found = it.outputs()
    explicitly(it.model)
    return not torch.allclose(found, it.outputs(), rtol=1e-6, atol=1e-6)


def padding_ignored(mask: Tensor | None, causal: bool = False) -> Any:
    return NoMask()


def padding_shifted(mask: Tensor | None, causal: bool = False) -> Any:
    kind = masks.mask_of(mask, causal)
    return type(kind)(kind.visible.roll(1, dims=-1)) if isinstance(kind, (KeyPadding, Dense)) else kind


def causal_shifted(mask: Tensor | None, causal: bool = False) -> Any:
    kind = masks.mask_of(mask, causal)
    return Causal(1) if isinstance(kind, Causal) else kind


def hidden_keys_counted(mask: Tensor | None, causal: bool = False) -> Any:
    """Weights as they should be, statistics over the hidden keys too: a large negative bias that nobody reads as never."""
    kind = masks.mask_of(mask, causal)
    return (
        Bias(torch.zeros(kind.visible.shape, dtype=torch.double).masked_fill(~kind.visible, -8e3))
        if isinstance(kind, Dense)
        else kind
    )


@pytest.mark.parametrize(
    ("family", "padding", "broken"),
    [
        ("bert", "right", padding_ignored),
        ("bert", "right", padding_shifted),
        ("gpt2", "left", padding_shifted),
        ("gpt2", "none", causal_shifted),
        ("llama", "none", padding_ignored),
        ("gpt2", "right", hidden_keys_counted),
    ],
)
def test_a_broken_mask_is_noticed(
    family: str,
    padding: str,
    broken: Callable[..., Any],
    case: Callable[..., Any],
    explicitly: Callable[[nn.Module], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not differs(case(family, padding), explicitly)
    monkeypatch.setattr(hugging_face, "mask_of", broken)
    assert differs(case(family, padding), explicitly)


@pytest.mark.parametrize(
    ("family", "padding", "broken"),
    [("bert", "right", padding_ignored), ("gpt2", "left", padding_shifted), ("gpt2", "none", causal_shifted)],
)
def test_the_patch_itself_notices_a_broken_mask_on_the_first_call(
    family: str, padding: str, broken: Callable[..., Any], case: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = case(family, padding)
    before = it.outputs()
    monkeypatch.setattr(hugging_face, "mask_of", broken)
    patched = eureka.patch(it.model, "norm_softmax")
    with pytest.raises(WorkError, match=rf"{patched.sites[0].name} .* with plain softmax its result is off by"):
        it.outputs()
    assert not patched.active
    assert torch.equal(it.outputs(), before)


class OverAllKeys(NormSoftmax):
    """Weights over the visible keys, statistics over all."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Any = None, dropout: float = 0.0) -> Tensor:
        return mix(masked_softmax(logits_of(q * self.beta(q, k, NoMask()), k), mask), v, dropout)


def test_broken_causal_statistics_are_noticed(case: Callable[..., Any], explicitly: Callable[[nn.Module], None]) -> None:
    assert differs(case("gpt2"), explicitly, OverAllKeys())


def test_a_position_bias_that_is_dropped_is_noticed(
    case: Callable[..., Any], explicitly: Callable[[nn.Module], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hugging_face, "biased", lambda mask, *_: mask)
    assert differs(case("t5"), explicitly)


def test_a_scale_that_is_dropped_is_noticed(
    case: Callable[..., Any], explicitly: Callable[[nn.Module], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hugging_face, "rescaled", lambda q, _: q)
    assert differs(case("t5"), explicitly)


def test_an_undo_that_leaves_the_operator_is_noticed(case: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    it = case("bert")
    before = it.outputs()
    monkeypatch.setattr(attach, "update_submodule", lambda *_: None)
    patched = eureka.patch(it.model, "norm_softmax")
    for site in patched.sites:
        site.module._modules["eureka_operator"] = eureka.make_operator("norm_softmax")
    patched.undo()
    assert not torch.equal(it.outputs(), before)
