"""Dividing by the length: the kernel against the formula, and both against a loop over vectors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from eureka.attention import qk_norm
from eureka.attention.rowwise import call

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "head by head": lambda x: x.contiguous(),
    "heads side by side": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "a third of a projection": lambda x: torch.stack([x.transpose(1, 2)] * 3, dim=2)[:, :, 1].transpose(1, 2),
    "the same for all samples": lambda x: x[:1].expand(x.shape),
}


def drawn(heads: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(heads)
    x, h = (torch.randn(3, heads, 5, 4, generator=g, dtype=torch.float64) for _ in range(2))
    return x.to(dtype), h.to(dtype), torch.rand(heads, 1, 1, generator=g, dtype=torch.float64).to(dtype) + 0.5


def loop(x: Tensor, h: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """y, ∂x and ∂g, one vector after the other."""
    y, grad, of_gain = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(gain)
    for b, head, n in torch.cartesian_prod(*(torch.arange(size) for size in x.shape[:3])).tolist():
        v, slope, g = x[b, head, n], h[b, head, n], gain[head, 0, 0]
        long = bool(v.norm() > qk_norm.SHORTEST)
        length = v.norm() if long else torch.tensor(qk_norm.SHORTEST, dtype=x.dtype)
        y[b, head, n] = g * v / length
        grad[b, head, n] = g * (slope / length - (v * (v @ slope) / length**3 if long else 0.0))
        of_gain[head] += v @ slope / length
    return y, grad, of_gain


def unit_and_gradients(x: Tensor, h: Tensor, gain: Tensor | None) -> list[Tensor]:
    inputs = [t.detach().requires_grad_() for t in (x, gain) if t is not None]
    y = call(qk_norm.Unit, inputs[0], inputs[1] if gain is not None else None)
    return [y.detach(), *torch.autograd.grad(y, inputs, h)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("short", [False, True])
def test_unit_vectors_and_their_gradients_are_those_of_a_loop_in_every_layout(
    monkeypatch: pytest.MonkeyPatch, layout: str, heads: int, dtype: torch.dtype, kernel: bool, short: bool
) -> None:
    x, h, gain = drawn(heads, dtype)
    if short:
        x[0, 0, 1], x[1, 0, 2] = 0.0, 1e-8
    x = LAYOUTS[layout](x)
    if not kernel:
        monkeypatch.setattr(qk_norm, "has_kernel", lambda x: False)
    assert qk_norm.has_kernel(x) == kernel
    exact = loop(x, h, gain)
    for found, expected in zip(unit_and_gradients(x, h, gain), exact, strict=True):
        torch.testing.assert_close(found, expected)
    for found, expected in zip(unit_and_gradients(x, h, None), loop(x, h, torch.ones_like(gain)), strict=False):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_may_come_in_any_layout(layout: str) -> None:
    x, h, gain = drawn(2, torch.float64)
    h = LAYOUTS[layout](h)
    for found, expected in zip(unit_and_gradients(x, h, gain), loop(x, h, gain), strict=True):
        torch.testing.assert_close(found, expected)


def test_an_empty_batch_has_empty_unit_vectors() -> None:
    y, grad = unit_and_gradients(torch.zeros(0, 2, 3, 4), torch.zeros(0, 2, 3, 4), None)
    assert y.shape == grad.shape == (0, 2, 3, 4)


def test_zeros_without_memory_have_a_gradient_of_zero() -> None:
    x, _, gain = drawn(2, torch.float32)
    zeros = torch._efficientzerotensor(x.shape)
    _, *grads = unit_and_gradients(x, zeros, gain)
    assert all(bool((grad == 0).all()) for grad in grads)


def test_who_traces_the_operations_gets_the_formula() -> None:
    x, _, _ = drawn(2, torch.float32)
    traced = make_fx(lambda x: call(qk_norm.Unit, x, None), tracing_mode="real")(x)
    torch.testing.assert_close(traced(x), torch.nn.functional.normalize(x, dim=-1))
