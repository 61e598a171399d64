from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.errors import RequestError

B, Q, K, E, H = 3, 5, 7, 12, 2


def multihead(**settings: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(E, H, **settings).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.35)
    return module


def data(module: nn.MultiheadAttention, cross: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(B, Q, E, generator=generator, dtype=torch.double)
    k = torch.randn(B, K, module.kdim, generator=generator, dtype=torch.double)
    v = torch.randn(B, K, module.vdim, generator=generator, dtype=torch.double)
    parts = (q, k, v) if cross else (q, q, q)
    return parts if module.batch_first else tuple(x.transpose(0, 1) for x in parts)  # type: ignore[return-value]


def paddings(keys: int) -> dict[str, Tensor | None]:
    hidden = torch.zeros(B, keys, dtype=torch.bool)
    hidden[0, -1] = hidden[1, :2] = True
    return {"none": None, "bool": hidden, "float": torch.zeros(B, keys).double().masked_fill(hidden, float("-inf"))}


def masks(keys: int) -> dict[str, Tensor | None]:
    generator = torch.Generator().manual_seed(2)
    hidden = torch.rand(Q, keys, generator=generator) < 0.3
    hidden[:, 3] = False
    return {
        "none": None,
        "bool": hidden,
        "float": torch.randn(Q, keys, generator=generator, dtype=torch.double).masked_fill(hidden, float("-inf")),
        "heads": (torch.rand(B * H, Q, keys, generator=generator) < 0.3).index_fill(2, torch.tensor([3]), False),
    }


def run(module: nn.Module, *inputs: Tensor, **options: Any) -> list[Tensor]:
    """Outputs, weights, and all gradients."""
    module.zero_grad()
    outputs = [x for x in module(*inputs, **options) if x is not None]
    outputs[0].square().sum().backward()
    return [x.detach() for x in outputs] + [p.grad.clone() for p in module.parameters() if p.grad is not None]


def assert_same(found: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    "settings",
    [{}, {"batch_first": True}, {"add_bias_kv": True}, {"add_zero_attn": True}, {"bias": False}, {"kdim": 6, "vdim": 10}],
    ids=lambda settings: "-".join(settings) or "plain",
)
@pytest.mark.parametrize("cross", [True, False], ids=["cross", "self"])
def test_multihead_attention_with_plain_softmax_is_itself(settings: dict[str, Any], cross: bool) -> None:
    if not cross and "kdim" in settings:
        settings = {"kdim": E, "vdim": E}
    module, keys = multihead(**settings), K if cross else Q
    for padding, mask, weights in itertools.product(paddings(keys).values(), masks(keys).values(), (True, False)):
        options = {"key_padding_mask": padding, "attn_mask": mask, "need_weights": weights}
        if padding is not None and mask is not None and padding.dtype != mask.dtype:
            continue  # PyTorch wants them alike
        wanted = run(module, *data(module, cross), **options)
        with eureka.patch(module, "softmax"):
            found = run(module, *data(module, cross), **options)
        assert_same(found, wanted)
        again = run(module, *data(module, cross), **options)
        assert all(torch.equal(one, other) for one, other in zip(again, wanted, strict=True))


def test_weights_of_single_heads_are_given_when_asked_for() -> None:
    module = multihead(batch_first=True)
    q, k, v = data(module)
    wanted = module(q, k, v, average_attn_weights=False)[1]
    with eureka.patch(module, "softmax"):
        found = module(q, k, v, average_attn_weights=False)[1]
    assert found.shape == (B, H, Q, K)
    torch.testing.assert_close(found, wanted)


def test_inputs_without_a_batch_stay_without_one() -> None:
    module = multihead()
    q, k, v = (x[:, 0] for x in data(module))
    wanted = run(module, q, k, v, key_padding_mask=paddings(K)["bool"][0])  # type: ignore[index]
    with eureka.patch(module, "softmax"):
        found = run(module, q, k, v, key_padding_mask=paddings(K)["bool"][0])  # type: ignore[index]
    assert_same(found, wanted)


@pytest.mark.parametrize("statistic", ["cross", "causal", "padding"])
def test_norm_softmax_in_multihead_attention_is_the_explicit_formula(
    statistic: str, explicit: Callable[..., Tensor], regimes: list[float]
) -> None:
    module = multihead(batch_first=True)
    q, k, v = data(module, cross=statistic == "cross")
    hidden: Tensor | None = None
    options: dict[str, Any] = {"need_weights": False}
    if statistic == "causal":
        hidden = torch.ones(Q, Q, dtype=torch.bool).triu(1)
        options |= {"attn_mask": hidden, "is_causal": True}
    if statistic == "padding":
        options["key_padding_mask"] = paddings(Q)["bool"]
        hidden = options["key_padding_mask"][:, None, None, :]
    with eureka.patch(module, "norm_softmax"):
        found = run(module, q, k, v, **options)

    def slowly(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor]:
        parts = zip((q, k, v), module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3), strict=True)
        heads = [(x @ w.T + b).reshape(*x.shape[:-1], H, E // H).transpose(1, 2) for x, w, b in parts]
        mixed = explicit(*heads, hidden, (E // H) ** -0.5).transpose(1, 2).flatten(2)
        return (mixed @ module.out_proj.weight.T + module.out_proj.bias,)

    slow = type("Slow", (nn.Module,), {"forward": lambda self, *args: slowly(*args)})()
    slow.module = module
    assert_same(found, run(slow, q, k, v))
    assert 0 < regimes[-1] < 1


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True), 2)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("padded", [True, False], ids=["padded", "whole"])
def test_the_fused_encoder_layer_of_torch_does_not_pass_a_patch_by(train: bool, grad: bool, padded: bool) -> None:
    model, x = encoder().train(train), torch.randn(B, Q, E)
    padding = torch.arange(Q)[None] >= torch.tensor([Q, 3, 4])[:, None] if padded else torch.zeros(B, Q, dtype=torch.bool)
    options = {"src_key_padding_mask": padding} if padded else {}
    with torch.set_grad_enabled(grad):
        wanted = model(x, **options)
        with eureka.patch(model, "softmax") as patched:
            assert [site.name for site in patched.sites] == ["layers.0.self_attn", "layers.1.self_attn"]
            torch.testing.assert_close(model(x, **options)[~padding], wanted[~padding], rtol=1e-5, atol=1e-5)
        with eureka.patch(model, "norm_softmax"):
            assert (model(x, **options) - wanted)[~padding].abs().max() > 1e-3
        assert torch.equal(model(x, **options), wanted)


def test_only_one_layer_of_an_encoder_may_be_patched_in_eval_mode() -> None:
    model, x = encoder().eval(), torch.randn(B, Q, E)
    with torch.no_grad():
        first = model.layers[0](x)
        with eureka.patch(model, "norm_softmax", layers=1):
            assert torch.equal(model.layers[0](x), first)


def test_a_whole_transformer_with_cross_attention_and_causal_masks_is_reached() -> None:
    torch.manual_seed(0)
    model = nn.Transformer(E, H, 1, 1, 16, dropout=0.0, batch_first=True).double()
    source, target = torch.randn(B, K, E).double(), torch.randn(B, Q, E).double()
    causal = nn.Transformer.generate_square_subsequent_mask(Q, dtype=torch.double)
    wanted = model(source, target, tgt_mask=causal, tgt_is_causal=True)
    with eureka.patch(model, "softmax") as patched:
        assert len(patched.sites) == 3
        torch.testing.assert_close(model(source, target, tgt_mask=causal, tgt_is_causal=True), wanted)
    with eureka.patch(model, "norm_softmax"):
        found = model(source, target, tgt_mask=causal, tgt_is_causal=True)
        later = target.clone()
        later[:, -1] += 10.0
        torch.testing.assert_close(model(source, later, tgt_mask=causal, tgt_is_causal=True)[:, :-1], found[:, :-1])


def test_a_nested_tensor_is_refused_in_one_sentence() -> None:
    module = multihead(batch_first=True).eval()
    nested = torch.nested.nested_tensor([torch.randn(3, E).double(), torch.randn(5, E).double()], layout=torch.jagged)
    with eureka.patch(module, "softmax"), pytest.raises(RequestError, match="takes padded tensors, not nested"):
        module(nested, nested, nested)
