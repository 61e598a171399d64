"""What people wrap around attention: compilation, autocast, checkpointing, function transforms, second derivatives."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from eureka.attention.mask import Causal, Dense
from eureka.attention.operator import make_operator
from eureka.attention.registry import FIXES

LONG, SHORT = (2, 2, 2, 22, 22, 4), (2, 2, 2, 6, 6, 4)  # the two paths of NormSoftmax
ALL = [(name, "none") for name in FIXES.names()]
COMPILER = pytest.mark.filterwarnings(
    "ignore:.*should not be instantiated:DeprecationWarning"
)  # Dynamo's own way with a Function
SDPA_VMAP = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # SDPA's, not ours: it loops on the CPU
NORM = [("norm_softmax", mask) for mask in ("causal", "padding", "dense", "bias")]


def attention(twin: Any, name: str, mask: str, shape: tuple[int, ...] = LONG) -> tuple[Callable[..., Tensor], list[Tensor]]:
    operator = twin.make(name, shape[1], shape[-1], dtype=torch.float32)
    kind = twin.masks(shape[0], shape[1], shape[3], shape[4], torch.float32)[mask]
    return lambda q, k, v: operator(q, k, v, kind), twin.inputs(shape, 0.6, torch.float32)


def gradients(out: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    for x in tensors:
        x.grad = None
    out.square().sum().backward()  # type: ignore[no-untyped-call]
    return [out.detach(), *(x.grad for x in tensors if x.grad is not None)]


def same(some: list[Tensor], others: list[Tensor], tolerance: float = 1e-5) -> None:
    assert len(some) == len(others) == 4
    for x, y in zip(some, others, strict=True):
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance)


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@COMPILER
@pytest.mark.parametrize(("name", "mask"), [*ALL, *NORM])
def test_compiles_as_one_graph(twin: Any, fresh_compiler: None, name: str, mask: str) -> None:
    f, tensors = attention(twin, name, mask)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    same(gradients(compiled(*tensors), tensors), gradients(f(*tensors), tensors))


@pytest.mark.skipif(shutil.which("g++") is None, reason="the default compiler needs g++")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch, inside its own compiler
def test_norm_softmax_compiles_with_the_default_compiler(twin: Any, fresh_compiler: None) -> None:
    f, tensors = attention(twin, "norm_softmax", "none", LONG)
    same(gradients(torch.compile(f, fullgraph=True)(*tensors), tensors), gradients(f(*tensors), tensors))


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize(("name", "mask"), [*ALL, *NORM])
def test_checkpointing_gives_the_same_gradients(twin: Any, name: str, mask: str, reentrant: bool) -> None:
    f, tensors = attention(twin, name, mask)
    same(gradients(checkpoint(f, *tensors, use_reentrant=reentrant), tensors), gradients(f(*tensors), tensors), 0.0)


@SDPA_VMAP
@pytest.mark.parametrize("shape", [SHORT, LONG])
@pytest.mark.parametrize(("name", "mask"), [*ALL, *NORM])
def test_vmap_of_a_gradient_equals_the_gradients_one_by_one(twin: Any, name: str, mask: str, shape: tuple[int, ...]) -> None:
    f, tensors = attention(twin, name, mask, shape)
    stacks = [torch.stack([x.detach(), 2 * x.detach(), x.detach().flip(0)]) for x in tensors]

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return f(q, k, v).square().sum()

    together = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*stacks)
    for i in range(3):
        one = [x[i].clone().requires_grad_() for x in stacks]
        same([f(*one).detach(), *(g[i] for g in together)], gradients(f(*one), one), 1e-4)


@pytest.mark.parametrize("shape", [SHORT, LONG])
@pytest.mark.parametrize("name", [name for name in FIXES.names() if name != "qr"])
def test_autocast_is_within_the_resolution_of_bfloat16(twin: Any, name: str, shape: tuple[int, ...]) -> None:
    f, tensors = attention(twin, name, "causal", shape)
    plain = gradients(f(*tensors), tensors)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = f(*tensors)
    for got, want in zip(gradients(out.float(), tensors), plain, strict=True):
        assert got.isfinite().all()
        assert (got - want).norm() <= 0.03 * want.norm() + 1e-3


@pytest.mark.parametrize("seed", range(4))
def test_half_precision_does_not_drown_the_gradients_of_causal_rows_with_few_keys(seed: int) -> None:
    """Two visible keys are normalised to ±1 whatever they are: a gradient of zero, as the difference of two terms of size 1/s."""
    g = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(2, 2, 40, 4, generator=g).bfloat16().requires_grad_() for _ in range(3)]
    exact = [x.detach().double().requires_grad_() for x in tensors]
    operator = make_operator("norm_softmax")
    for got, want in zip(
        gradients(operator(*tensors, Causal()), tensors), gradients(operator(*exact, Causal()), exact), strict=True
    ):
        assert (got.double() - want).norm() <= 0.02 * want.norm()


def test_autocast_leaves_the_statistics_in_single_precision(twin: Any) -> None:
    """Keys with a common part: a spread from products of 8 bits would be off by several per cent."""
    q, k, _ = (x.detach() for x in twin.inputs(LONG, 0.6, torch.float32, offset=20.0))
    operator = make_operator("norm_softmax")
    for mask in (Causal(), Dense(torch.ones(22, 22).bool())):
        exact = operator.beta(q, k, mask)  # type: ignore[operator]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(operator.beta(q, k, mask), exact)  # type: ignore[operator]
            weights = operator.weights(q, k, mask)
        assert torch.equal(weights, operator.weights(q, k, mask))


@pytest.mark.parametrize(
    ("name", "mask"), [("norm_softmax", "none"), ("norm_softmax", "causal"), ("norm_softmax", "dense"), ("qk_norm", "none")]
)
def test_second_derivatives_are_refused_rather_than_wrong(twin: Any, name: str, mask: str) -> None:
    for shape in (SHORT, LONG):
        f, tensors = attention(twin, name, mask, shape)
        (first,) = torch.autograd.grad(f(*tensors).square().sum(), tensors[0], create_graph=True)
        with pytest.raises(RuntimeError, match=r"once_differentiable|not implemented|does not require grad"):
            first.sum().backward()  # type: ignore[no-untyped-call]
