"""What is particular to each operator, and what each says when it is asked for something it cannot do."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from eureka.attention import qk_norm
from eureka.attention.gradient_balance import rms
from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, NoMask
from eureka.attention.operator import make_operator
from eureka.attention.registry import FIXES
from eureka.errors import RequestError, UnknownNameError


def qkv(queries: int = 6, keys: int = 6, d: int = 4, heads: int = 2) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, n, d, generator=g, dtype=torch.float64).requires_grad_() for n in (queries, keys, keys)]


def test_all_fixes_are_listed_with_one_line_and_a_source() -> None:
    assert set(FIXES.names()) == {
        *("softmax", "temperature", "heat_treatment", "norm_softmax", "norm_softmax_var", "learnable_temperature", "qk_norm"),
        *("qk_layernorm", "ssmax", "softmax_plus_one", "sigmoid", "linear", "sinkhorn", "qr", "gradient_balance"),
    }
    assert all(entry.summary and entry.source and "\n" not in entry.summary for entry in FIXES.entries())


def test_heat_treatment_rises_from_a_third_to_sqrt_d_over_half_of_training() -> None:
    operator: Any = make_operator("heat_treatment", total_steps=100, heads=2, head_dim=16)
    temperatures = []
    for step in (0, 25, 50, 100):
        operator.advance(step)
        temperatures.append(1 / operator.beta(torch.zeros(1, 1, 1, 16), torch.zeros(1, 1, 1, 16), NoMask()))
    assert temperatures == pytest.approx([1 / 3, (1 / 3 + 4) / 2, 4.0, 4.0])


@pytest.mark.parametrize("name", ["learnable_temperature", "ssmax", "qk_norm"])
def test_learned_operators_have_a_parameter_per_head_that_learns(name: str) -> None:
    operator = make_operator(name, heads=3, head_dim=4).double()
    (parameter,) = operator.parameters()
    assert isinstance(parameter, nn.Parameter)
    assert parameter.shape == (3,)
    operator(*qkv(heads=3), Causal()).square().sum().backward()
    assert parameter.grad is not None
    assert (parameter.grad != 0).all()


def test_learnable_temperature_starts_as_plain_softmax(twin: Any) -> None:
    tensors = qkv()
    torch.testing.assert_close(twin.make("learnable_temperature", 2, 4)(*tensors), twin.make("softmax", 2, 4)(*tensors))


def test_sinkhorn_without_iterations_is_softmax_and_with_many_is_doubly_stochastic(twin: Any) -> None:
    q, k, _ = qkv()
    torch.testing.assert_close(
        twin.make("sinkhorn", 2, 4, {"iterations": 0}).weights(q, k), twin.make("softmax", 2, 4).weights(q, k)
    )
    weights = twin.make("sinkhorn", 2, 4, {"iterations": 300}).weights(q, k)
    torch.testing.assert_close(weights.sum(-2), torch.ones(2, 2, 6).double())
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 6).double())


def test_sinkhorn_under_a_causal_mask_tends_to_the_identity(twin: Any) -> None:
    q, k, _ = qkv()
    weights = twin.make("sinkhorn", 2, 4, {"iterations": 3000}).weights(q, k, Causal())
    torch.testing.assert_close(weights, torch.eye(6).double().expand_as(weights), atol=0.02, rtol=0)


def test_qr_is_the_squared_factor_of_a_standard_factorisation(twin: Any) -> None:
    q, k, _ = qkv(queries=4, keys=6)  # rank 4: full for four queries
    logits = q @ k.transpose(-2, -1) / 2
    factor = torch.linalg.qr(logits.transpose(-2, -1)).Q.transpose(-2, -1)
    torch.testing.assert_close(twin.make("qr", 2, 4).weights(q, k), factor.square(), atol=1e-3, rtol=1e-3)


def test_qr_is_doubly_stochastic_when_square_and_of_full_rank(twin: Any) -> None:
    q, k, _ = qkv(queries=4, keys=4)
    torch.testing.assert_close(twin.make("qr", 2, 4).weights(q, k).sum(-2), torch.ones(2, 2, 4).double(), atol=3e-3, rtol=0)


def test_qr_rows_beyond_the_rank_see_all_keys_alike(twin: Any) -> None:
    q, k, _ = qkv(queries=9, keys=12)  # rank 4: five rows add nothing
    weights = twin.make("qr", 2, 4).weights(q, k)
    torch.testing.assert_close(weights[:, :, 4:], torch.full((2, 2, 5, 12), 1 / 12).double(), atol=2e-3, rtol=0)


@pytest.mark.parametrize("mask", [None, Causal()])
def test_gradient_balance_leaves_the_forward_pass_alone_and_evens_the_gradients(twin: Any, mask: Any) -> None:
    q, k, v = ((x * s).detach().requires_grad_() for x, s in zip(qkv(), (0.1, 0.1, 1.0), strict=True))
    plain, balanced = twin.make("softmax", 2, 4)(q, k, v, mask), twin.make("gradient_balance", 2, 4)(q, k, v, mask)
    assert torch.equal(plain, balanced)
    raw = torch.autograd.grad(plain.square().sum(), (q, k, v))
    even = torch.autograd.grad(balanced.square().sum(), (q, k, v))
    assert rms(raw[0]) < 0.1 * rms(raw[2])
    assert torch.equal(even[2], raw[2])
    for before, after in zip(raw[:2], even[:2], strict=True):
        torch.testing.assert_close(rms(after), rms(raw[2]))
        torch.testing.assert_close(after / rms(after), before / rms(before))


def test_bias_does_not_count_in_the_spread(twin: Any) -> None:
    q, k, _ = qkv()
    for queries in (q, q.repeat(1, 1, 8, 1)):
        bias = torch.linspace(-50, 50, 6).double().expand(queries.shape[2], 6)
        operator = twin.make("norm_softmax", 2, 4)
        assert torch.allclose(operator.beta(queries, k, Bias(bias)), operator.beta(queries, k, NoMask()))


def test_a_padding_mask_built_as_a_dense_one_is_the_same(twin: Any) -> None:
    q, k, v = qkv(40, 40)
    visible = torch.rand(2, 40, generator=torch.Generator().manual_seed(1)) > 0.4
    operator = twin.make("norm_softmax", 2, 4)
    assert torch.equal(operator(q, k, v, visible[:, None, None]), operator(q, k, v, KeyPadding(visible)))


WRONG: dict[str, tuple[Any, str]] = {
    "keys that do not group": (
        lambda: make_operator("softmax")(*(torch.zeros(1, h, 2, 4) for h in (4, 3, 3))),
        "3 does not divide 4",
    ),
    "mask of the wrong shape": (
        lambda: make_operator("norm_softmax")(*qkv(), torch.ones(5, 7).bool()),
        r"\(5, 7\) does not broadcast to \(B, H, Q, K\) = \(2, 2, 6, 6\)",
    ),
    "padding of the wrong shape": (
        lambda: make_operator("softmax")(*qkv(), KeyPadding(torch.ones(2, 5).bool())),
        r"\(2, 5\) does not fit \(B, K\) = \(2, 6\)",
    ),
    "padding of numbers": (lambda: make_operator("softmax")(*qkv(), KeyPadding(torch.ones(2, 6))), "boolean.*float32"),
    "dense mask of numbers": (lambda: make_operator("softmax")(*qkv(), Dense(torch.ones(6, 6))), "boolean.*Bias"),
    "bias of integers": (lambda: make_operator("softmax")(*qkv(), torch.ones(6, 6).long()), "floating-point.*int64"),
    "mask of another type": (lambda: make_operator("softmax")(*qkv(), "causal"), "not str"),
    "no key": (lambda: make_operator("softmax")(*(torch.zeros(1, 1, n, 4) for n in (3, 0, 0))), "not 3 and 0"),
    "no query": (lambda: make_operator("norm_softmax")(*(torch.zeros(1, 1, n, 4) for n in (0, 3, 3))), "not 0 and 3"),
    "three dimensions": (
        lambda: make_operator("softmax")(*(torch.zeros(1, 3, 4) for _ in range(3))),
        r"four dimensions.*\(1, 3, 4\)",
    ),
    "values of another length": (
        lambda: make_operator("softmax")(*(torch.zeros(1, 1, n, 4) for n in (3, 4, 5))),
        r"\(1, 1, 5, 4\)",
    ),
    "head dimensions that differ": (
        lambda: make_operator("softmax")(*(torch.zeros(1, 1, 3, d) for d in (4, 5, 5))),
        "head dimension",
    ),
    "heads it was not made for": (lambda: make_operator("qk_norm", heads=3)(*qkv()), "made for 3 heads, but q has 2"),
    "an unknown statistic": (lambda: make_operator("norm_softmax", {"statistic": "sd"}), "'std'.*'sd'"),
    "a negative temperature": (lambda: make_operator("temperature", {"temperature": -1}), "temperature = -1"),
    "a cap of zero": (lambda: make_operator("norm_softmax", {"cap": 0}), "cap"),
    "negative iterations": (lambda: make_operator("sinkhorn", {"iterations": -1}), "iterations = -1"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_request_gets_one_sentence_with_the_values(what: str) -> None:
    ask, sentence = WRONG[what]
    with pytest.raises(RequestError, match=sentence) as caught:
        ask()
    assert "\n" not in str(caught.value)


DIRECT: dict[str, tuple[dict[str, Any], str]] = {
    "eureka.attention.norm_softmax:NormSoftmax": ({"statistic": "sd"}, "'sd'"),
    "eureka.attention.temperature:Temperature": ({"temperature": -2.0}, "-2.0"),
    "eureka.attention.sinkhorn:Sinkhorn": ({"iterations": -3}, "-3"),
}


@pytest.mark.parametrize("target", DIRECT)
def test_a_class_used_directly_says_the_same(target: str) -> None:
    settings, value = DIRECT[target]
    entry = next(entry for entry in FIXES.entries() if entry.target == target)
    with pytest.raises(RequestError, match=value):
        entry.load()(**settings)


def test_an_unknown_operator_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'norm_softmax'"):
        make_operator("norm_sofmax")


def test_an_operator_made_without_what_it_needs_to_know_says_what_that_is() -> None:
    with pytest.raises(RequestError, match=r"^fix 'qk_norm' needs heads, which is not known here; give heads=….$"):
        make_operator("qk_norm")


def test_ssmax_counts_only_visible_keys(twin: Any) -> None:
    q, k, _ = qkv()
    beta = twin.make("ssmax", 2, 4).beta(q, k, Causal())
    torch.testing.assert_close(
        beta[0].flatten() if beta.dim() == 3 else beta.flatten()[:6], torch.arange(1, 7).double().log() * 0.43 / 2
    )
    assert beta.flatten()[0] == 0.0 == math.log(1)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("length", [1e-4, 1e15])
def test_qk_norm_of_very_short_and_very_long_vectors_has_the_gradient_of_double_precision(
    monkeypatch: pytest.MonkeyPatch, kernel: bool, length: float
) -> None:
    monkeypatch.setattr(qk_norm, "has_kernel", lambda x: kernel)
    g = torch.Generator().manual_seed(0)
    exact = [torch.randn(2, 2, 9, 4, generator=g, dtype=torch.float64) for _ in range(3)]
    exact[0] *= length
    found = []
    for dtype in (torch.float64, torch.float32):
        operator = make_operator("qk_norm", heads=2).to(dtype)
        q, k, v = (x.to(dtype).requires_grad_() for x in exact)
        found.append(torch.autograd.grad(operator(q, k, v).pow(3).sum(), [q, k, v, *operator.parameters()]))
    for double, single in zip(*found, strict=True):
        torch.testing.assert_close(single.double() / double.abs().max(), double / double.abs().max(), rtol=0, atol=1e-4)
