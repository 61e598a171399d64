"""A patched module does what the plain one does: with masks that hide everything, with nothing to attend to, with wrong masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka

transformers = pytest.importorskip("transformers")
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS  # noqa: E402

B, N, E, H = 3, 5, 12, 2


def eager_attention_forward(module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **_: Any) -> Any:
    logits = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    weights = (logits if mask is None else logits + mask).softmax(-1)
    return (weights @ v).transpose(1, 2), weights


class Interface(nn.Module):
    """An attention module in the manner of transformers, with a causal flag."""

    def __init__(self, implementation: str) -> None:
        super().__init__()
        self.config = transformers.BertConfig(attn_implementation=implementation)
        self.is_causal = True
        self.query = nn.Linear(E, E)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k = (one.reshape(*one.shape[:2], H, E // H).transpose(1, 2) for one in (self.query(x), x))
        v = k
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        mixed: Tensor = attend(self, q, k, v, mask)[0]
        return mixed


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_without_a_mask_the_causal_flag_counts_only_where_it_counts_in_the_plain_module(implementation: str) -> None:
    model, x = Interface(implementation), torch.randn(B, N, E)
    wanted = model(x)
    with eureka.patch(model, "softmax", check=False):
        torch.testing.assert_close(model(x), wanted)


@pytest.mark.parametrize("fix", ["softmax", "norm_softmax"])
@pytest.mark.parametrize("tokens", [5, 40], ids=["short", "fused"])
def test_a_row_that_sees_no_key_gets_the_mean_under_eager_attention_as_in_the_plain_module(fix: str, tokens: int) -> None:
    model, x = Interface("eager").double(), torch.randn(B, tokens, E).double()
    mask = torch.zeros(B, 1, tokens, tokens).double()
    mask[1, :, 2] = torch.finfo(torch.double).min
    wanted = model(x, mask)
    with eureka.patch(model, fix):
        found = model(x, mask)
    torch.testing.assert_close(found[1, 2], x[1].mean(dim=0).reshape(H, -1))
    torch.testing.assert_close(found[1, 2], wanted[1, 2])
    if fix == "softmax":
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("fix", ["softmax", "norm_softmax"])
def test_a_row_that_sees_no_key_gets_zeros_under_sdpa_as_in_the_plain_module(fix: str) -> None:
    model, x = Interface("sdpa"), torch.randn(B, N, E)
    mask = torch.ones(B, 1, N, N, dtype=torch.bool)
    mask[1, :, 2] = False
    assert not model(x, mask)[1, 2].any()
    with eureka.patch(model, fix):
        assert not model(x, mask)[1, 2].any()


WRONG: dict[str, dict[str, Any]] = {
    "uint8 padding": {"key_padding_mask": torch.zeros(B, N, dtype=torch.uint8)},
    "int64 padding": {"key_padding_mask": torch.zeros(B, N, dtype=torch.long)},
    "padding of another batch": {"key_padding_mask": torch.zeros(1, N, dtype=torch.bool)},
    "one row": {"attn_mask": torch.zeros(1, N, dtype=torch.bool)},
    "a mask for each head": {"attn_mask": torch.zeros(H, N, N, dtype=torch.bool)},
    "integers": {"attn_mask": torch.zeros(N, N, dtype=torch.int32)},
    "a hint alone": {"is_causal": True},
    "another width": {"key": torch.zeros(B, N, E + 1)},
}


@pytest.mark.parametrize("wrong", list(WRONG))
def test_multihead_attention_refuses_what_torch_refuses_with_the_same_error(wrong: str) -> None:
    model, x = nn.MultiheadAttention(E, H, batch_first=True), torch.randn(B, N, E)
    given = {"query": x, "key": x, "value": x, "need_weights": False} | WRONG[wrong]
    with pytest.raises((AssertionError, RuntimeError)) as plain:
        model(**given)
    with eureka.patch(model, "norm_softmax", check=False), pytest.raises(type(plain.value)) as patched:
        model(**given)
    assert str(patched.value) == str(plain.value)


class Call(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **options)


def test_a_wrong_call_of_the_function_raises_the_error_of_the_function() -> None:
    q, model = torch.randn(1, 2, 4, 8), Call()
    for options in ({"attn_mask": torch.ones(4, 4, dtype=torch.int)}, {"attn_mask": torch.ones(3, 4, dtype=torch.bool)}):
        with pytest.raises(RuntimeError) as plain:
            model(q, q, q, **options)
        with eureka.patch(model, "norm_softmax"), pytest.raises(RuntimeError) as patched:
            model(q, q, q, **options)
        assert type(patched.value) is type(plain.value)


def written_out() -> nn.Module:
    class WrittenOut(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(E, 3 * E)

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.qkv(x).chunk(3, dim=-1)
            weights: Tensor = (q @ k.transpose(-1, -2)).softmax(-1)
            mixed: Tensor = weights @ v
            return mixed

    return WrittenOut()


def encoder_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)


@pytest.mark.parametrize("shape", [(0, N, E), (B, 0, E)], ids=["no sample", "no token"])
@pytest.mark.parametrize(
    "make",
    [lambda: Interface("sdpa"), lambda: Interface("eager"), encoder_layer, written_out],
    ids=["sdpa", "eager", "torch", "hand"],
)
@pytest.mark.parametrize("fix", ["norm_softmax", "sinkhorn"])
def test_nothing_to_attend_to_comes_out_as_in_the_plain_module(
    make: Callable[[], nn.Module], shape: tuple[int, ...], fix: str
) -> None:
    model, x = make(), torch.zeros(*shape)
    wanted = model(x)
    with eureka.patch(model, fix):
        found = model(x)
    assert found.shape == wanted.shape
    model(torch.randn(B, N, E))


def test_no_key_at_all_comes_out_as_in_the_plain_function() -> None:
    model, q, k = Call(), torch.randn(2, H, 3, 4), torch.randn(2, H, 0, 4)
    with eureka.patch(model, "norm_softmax"):
        torch.testing.assert_close(model(q, k, k), F.scaled_dot_product_attention(q, k, k), equal_nan=True)


def test_one_query_for_all_samples_is_repeated() -> None:
    model, q, k = Call(), torch.randn(1, H, 3, 4), torch.randn(B, H, 6, 4)
    wanted = model(q, k, k)
    with eureka.patch(model, "softmax"):
        torch.testing.assert_close(model(q, k, k), wanted)
    with eureka.patch(model, "norm_softmax"):
        assert model(q, k, k).shape == wanted.shape


def test_an_eager_function_by_another_name_is_called_and_compared() -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 16}
    config = transformers.TimesFmConfig(patch_length=8, context_length=32, horizon_length=8, **sizes)
    model = transformers.TimesFmModel(config).eval()
    model.set_attn_implementation("eager")
    given = {
        "past_values": torch.randn(2, 32),
        "past_values_padding": torch.zeros(2, 32).long(),
        "freq": torch.zeros(2, 1).long(),
    }
    wanted = model(**given).last_hidden_state
    with eureka.patch(model, "softmax"):
        torch.testing.assert_close(model(**given).last_hidden_state, wanted)
    with eureka.AttentionProbe(model) as probe, probe.look():
        model(**given)
    assert probe.records
