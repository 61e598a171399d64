from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as attend_by_another_name

import eureka
from eureka.errors import RequestError, WorkError

E, H = 12, 2
SDPA = F.scaled_dot_product_attention


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(E, 3 * E)

    def heads(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, E // H)).permute(2, 0, 3, 1, 4)
        return q, k, v


class ByModule(Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class ByFullName(Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class ByImport(Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return attend_by_another_name(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def helper(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class ByHelper(Base):
    def forward(self, x: Tensor) -> Tensor:
        return helper(*self.heads(x)).transpose(1, 2).flatten(2)


class ByMethod(Base):
    """Its forward is never called: a parent calls another method."""

    def mixed(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class CallsMethod(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = ByMethod()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner.mixed(x)


class ByStaticMethod(Base):
    @staticmethod
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(*self.heads(x)).transpose(1, 2).flatten(2)


class ByAttribute(Base):
    def __init__(self) -> None:
        super().__init__()
        self.attention = F.scaled_dot_product_attention

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return self.attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Inherited(ByModule):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


ALL = [ByModule, ByFullName, ByImport, ByHelper, CallsMethod, ByStaticMethod, ByAttribute, Inherited]


def made(cls: Callable[[], nn.Module]) -> tuple[Any, Tensor]:
    torch.manual_seed(0)
    model = cls().double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model, torch.randn(3, 6, E, dtype=torch.double)


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_way_to_call_the_function_is_reached(
    cls: type[nn.Module], explicit: Callable[..., Tensor], regimes: list[float]
) -> None:
    model, x = made(cls)
    plain = model(x)
    with eureka.patch(model, "softmax") as patched:
        assert len(patched.sites) == 1
        torch.testing.assert_close(model(x), plain)
    with eureka.patch(model, "norm_softmax"):
        found = model(x)
    base = next(module for module in model.modules() if isinstance(module, Base))
    hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
    wanted = explicit(*base.heads(x), hidden, (E // H) ** -0.5).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, wanted + (cls is Inherited))
    assert 0 < regimes[-1] < 1
    assert torch.equal(model(x), plain)
    assert F.scaled_dot_product_attention is SDPA is attend_by_another_name


class AnyCall(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, **options)


def parts(*lead: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)

    def make(n: int, d: int) -> Tensor:
        return torch.randn(*lead, n, d, generator=generator, dtype=torch.double)

    return make(5, 4), make(7, 4), make(7, 3)


@pytest.mark.parametrize("lead", [(), (3,), (3, 2), (2, 3, 2)])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_plain_softmax_is_the_function_itself_in_every_shape_and_scale(lead: tuple[int, ...], scale: float | None) -> None:
    model, (q, k, v) = AnyCall(), parts(*lead)
    mask = torch.rand(*lead, 5, 7, generator=torch.Generator().manual_seed(3)) < 0.7
    mask[..., 0] = True
    bias = torch.randn(5, 7, dtype=torch.double).masked_fill(~mask.flatten(0, -3)[0] if lead else ~mask, -1e9)
    for options in ({}, {"attn_mask": mask}, {"attn_mask": bias}, {"is_causal": True}):
        wanted = model(q, k, v, scale=scale, **options)
        with eureka.patch(model, "softmax"):
            torch.testing.assert_close(model(q, k, v, scale=scale, **options), wanted)


def test_grouped_heads_are_passed_on() -> None:
    q, k, v = torch.randn(2, 4, 5, 4), torch.randn(2, 2, 7, 4), torch.randn(2, 2, 7, 4)
    model = AnyCall()
    wanted = model(q, k, v, enable_gqa=True)
    with eureka.patch(model, "softmax"):
        torch.testing.assert_close(model(q, k, v, enable_gqa=True), wanted)


def test_the_scale_of_the_model_is_the_unit_of_the_operator(explicit: Callable[..., Tensor]) -> None:
    q, k, v = parts(3, 2)
    model = AnyCall()
    with eureka.patch(model, "norm_softmax"):
        torch.testing.assert_close(model(q, k, v, scale=1.7), explicit(q, k, v, None, 1.7))


@pytest.mark.parametrize("never", [float("-inf"), -1e9, -1e4, torch.finfo(torch.double).min])
def test_a_bias_that_means_never_hides_the_key_from_the_statistics(never: float, explicit: Callable[..., Tensor]) -> None:
    q, k, v = parts(3, 2)
    hidden = torch.ones(5, 7, dtype=torch.bool).triu(3)
    bias = torch.zeros(5, 7, dtype=torch.double).masked_fill(hidden, never)
    model = AnyCall()
    with eureka.patch(model, "norm_softmax"):
        torch.testing.assert_close(model(q, k, v, attn_mask=bias), explicit(q, k, v, hidden, 0.5))


@pytest.mark.parametrize("lead", [(3, 2), (4, 3, 2), (2, 2, 3, 2)])
def test_a_mask_is_broadcast_from_the_right_whatever_the_batch_dimensions(
    lead: tuple[int, ...], explicit: Callable[..., Tensor]
) -> None:
    """Such as the bias of each head of windowed attention, (H, Q, K), or one for each window, (W, 1, Q, K)."""
    model, (q, k, v) = AnyCall(), parts(*lead)
    for shape in (lead[start:] if start < len(lead) else () for start in range(len(lead) + 1)):
        for mask_shape in {shape, (*shape[:-1], 1)} if shape else {()}:
            mask = torch.rand(*mask_shape, 5, 7, generator=torch.Generator().manual_seed(3)) < 0.7
            mask[..., 0] = True
            wanted = model(q, k, v, attn_mask=mask)
            with eureka.patch(model, "softmax"):
                torch.testing.assert_close(model(q, k, v, attn_mask=mask), wanted)
            with eureka.patch(model, "norm_softmax"):
                found = model(q, k, v, attn_mask=mask).flatten(0, -4)
            hidden = ~mask.expand(*lead, 5, 7).flatten(0, -4)
            torch.testing.assert_close(found, explicit(*(x.flatten(0, -4) for x in (q, k, v)), hidden, 0.5))


def test_calls_of_other_models_are_left_alone_even_while_a_patched_one_is_running() -> None:
    model, x = made(ByModule)
    other, _ = made(ByModule)
    plain = other(x)
    entered, go_on = threading.Event(), threading.Event()

    def pause(*_: Any) -> None:
        entered.set()
        assert go_on.wait(10)

    model.qkv.register_forward_hook(pause)
    found: list[Tensor] = []
    with eureka.patch(model, "norm_softmax"):
        thread = threading.Thread(target=lambda: found.append(model(x)))
        thread.start()
        assert entered.wait(10)
        assert F.scaled_dot_product_attention is not SDPA
        assert torch.equal(other(x), plain)
        assert torch.equal(F.scaled_dot_product_attention(x, x, x), SDPA(x, x, x))
        go_on.set()
        thread.join()
    assert F.scaled_dot_product_attention is SDPA
    assert not torch.allclose(found[0], plain)


def test_many_threads_each_get_their_own_models_attention() -> None:
    models = [made(ByModule)[0] for _ in range(4)]
    x = torch.randn(3, 6, E, dtype=torch.double)
    fixes = ["softmax", "norm_softmax", "norm_softmax_var", "softmax"]
    patches = [eureka.patch(model, fix) for model, fix in zip(models, fixes, strict=True)]
    wanted = [model(x) for model in models]
    wrong: list[int] = []

    def work(i: int) -> None:
        wrong.extend(i for _ in range(50) if not torch.equal(models[i](x), wanted[i]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for patched in patches:
        patched.undo()
    assert not wrong
    assert F.scaled_dot_product_attention is SDPA


def test_an_error_inside_a_patched_module_leaves_the_function_as_it_was() -> None:
    model, _ = made(ByModule)
    with pytest.raises(RuntimeError), eureka.patch(model, "softmax"):
        model(torch.randn(3, 6, E + 1))
    assert F.scaled_dot_product_attention is SDPA
    assert type(model) is ByModule


class Sometimes(Base):
    def __init__(self, fused_attn: bool) -> None:
        super().__init__()
        self.fused_attn, self.slow = fused_attn, False

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        if self.fused_attn and not self.slow:
            return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        weights: Tensor = (q @ k.transpose(-2, -1) * (E // H) ** -0.5).softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2)


def test_an_unfused_switch_as_timm_has_it_is_turned_on_and_back() -> None:
    model, x = made(lambda: Sometimes(False))
    plain = model(x)
    with eureka.patch(model, "softmax"):
        assert model.fused_attn is True
        torch.testing.assert_close(model(x), plain)
    assert model.fused_attn is False
    assert torch.equal(model(x), plain)


@pytest.mark.parametrize("fix", ["softmax", "norm_softmax"])
def test_a_branch_that_writes_attention_out_goes_to_the_operator_too(fix: str) -> None:
    model, x = made(lambda: Sometimes(True))
    plain = model(x)
    with eureka.patch(model, fix):
        fused = model(x)
        model.slow = True
        torch.testing.assert_close(model(x), fused)
    assert torch.allclose(fused, plain) is (fix == "softmax")
    torch.testing.assert_close(model(x), plain)
    assert type(model) is Sometimes


def test_a_control_that_needs_values_says_so_in_a_branch_that_writes_attention_out() -> None:
    model, x = made(lambda: Sometimes(True))
    with eureka.patch(model, "gradient_balance"):
        model(x)
        model.slow = True
        with pytest.raises(
            WorkError, match="Sometimes writes its softmax out here, where GradientBalance cannot reach its values"
        ):
            model(x)


class Seldom(Sometimes):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        weights: Tensor = (q @ k.transpose(-2, -1)).tanh().softmax(-1)
        return (weights @ v).transpose(1, 2).flatten(2) if self.slow else super().forward(x)


def test_a_patched_module_that_goes_its_own_way_says_so() -> None:
    model, x = made(lambda: Seldom(True))
    with eureka.patch(model, "softmax"):
        model(x)  # a softmax that it takes besides is its own matter
        model.slow = True
        with pytest.raises(WorkError, match="Seldom was patched, but this call of it made no attention"):
            model(x)


class ByHand(Base):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.heads(x)
        return torch.softmax(q @ k.transpose(-2, -1), dim=-1) @ v


def flash_attn_func(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    raise NotImplementedError


class ByPackage(Base):
    def forward(self, x: Tensor) -> Tensor:
        return flash_attn_func(*self.heads(x))


@pytest.mark.parametrize(("cls", "reason"), [(ByPackage, "calls flash_attn_func")])
def test_attention_that_cannot_be_swapped_is_refused_and_not_ignored(cls: type[nn.Module], reason: str) -> None:
    model = nn.Sequential(ByModule(), cls())
    with pytest.raises(RequestError, match=rf"1 of Sequential {reason}.*layers="):
        eureka.patch(model, "softmax")
    with eureka.patch(model, "softmax", layers="0") as patched:
        assert [site.name for site in patched.sites] == ["0"]


class Hidden(Base):
    """Reaches the function in a way that no reading of its code can see."""

    def forward(self, x: Tensor) -> Tensor:
        function: Callable[..., Tensor] = getattr(F, "scaled_dot_" + "product_attention")
        q, k, v = self.heads(x)
        return function(q, k, v, is_causal=True)


def test_a_site_that_code_does_not_show_can_be_named() -> None:
    model, x = made(lambda: nn.Sequential(Hidden()))
    plain = model(x)
    with pytest.raises(RequestError, match=r"no attention found in Sequential \(3 modules searched"):
        eureka.patch(model, "norm_softmax")
    with eureka.patch(model, "norm_softmax", sites=["0"]):
        assert not torch.allclose(model(x), plain)
    with pytest.raises(RequestError, match="has no module '7'"):
        eureka.patch(model, "norm_softmax", sites=["7"])


class Outer(ByModule):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(E, H, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.inner(x, x, x, need_weights=False)[0])


def test_a_site_inside_a_site_keeps_its_own_operator() -> None:
    model, x = made(Outer)
    plain = model(x)
    with eureka.patch(model, "softmax"):
        torch.testing.assert_close(model(x), plain)
    with eureka.patch(model, {0: "norm_softmax", 1: "softmax"}), eureka.AttentionProbe(model) as probe, probe.look():
        found = model(x)
    assert [site.name for site in probe.records[0].sites] == ["", "inner"]
    with eureka.patch(model, "softmax", layers="inner"):
        torch.testing.assert_close(model(x), plain)
    with pytest.raises(RequestError, match=r"inner is inside .*; patch both or the inner one only"):
        eureka.patch(model, "norm_softmax", layers=0)
    assert not torch.allclose(found, plain)


def test_a_model_without_attention_is_refused_in_one_sentence() -> None:
    resnet = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2), nn.Softmax(-1))
    with pytest.raises(RequestError) as caught:
        eureka.patch(resnet, "softmax")
    assert "\n" not in str(caught.value)
    assert "no attention found in Sequential (7 modules searched" in str(caught.value)


def test_something_that_is_no_model_is_refused() -> None:
    with pytest.raises(RequestError, match=r"a torch\.nn\.Module is patched, not str"):
        eureka.patch("bert", "softmax")  # type: ignore[arg-type]


def test_a_patch_says_where_a_branch_may_avoid_it() -> None:
    class Branching(nn.Module):
        fused = True

        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x) if self.fused else torch.softmax(x @ x.transpose(1, 2), -1) @ x

    assert "only where no branch avoids it (test_sdpa.py:" in repr(eureka.patch(Branching(), "norm_softmax"))


class Processor:
    """Calls the function for a module, in the manner of diffusers."""

    def __call__(self, module: Base, x: Tensor) -> Tensor:
        q, k, v = module.heads(x)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class WithProcessor(Base):
    def __init__(self) -> None:
        super().__init__()
        self.processor = Processor()

    def set_use_memory_efficient_attention(self) -> None:
        self.kernel = flash_attn_func

    def forward(self, x: Tensor) -> Tensor:
        return self.processor(self, x)


def test_a_module_that_lets_a_processor_call_the_function_is_a_site_whatever_its_setters_name() -> None:
    model, x = made(WithProcessor)
    plain = model(x)
    with eureka.patch(model, "softmax") as patched:
        assert [site.kind for site in patched.sites] == ["call"]
        torch.testing.assert_close(model(x), plain)
    with eureka.patch(model, "norm_softmax"):
        assert not torch.allclose(model(x), plain)
