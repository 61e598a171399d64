"""Gradient checkpointing, torch.compile, autocast, DistributedDataParallel."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

import eureka
from eureka.errors import RequestError

E, H = 12, 2


class Home(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(E, 3 * E)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, E // H)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Stack(nn.Module):
    def __init__(self, make: Callable[[], nn.Module], mode: str = "none") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(make() for _ in range(2))
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) if self.mode == "none" else checkpoint(layer, x, use_reentrant=self.mode == "reentrant")
        return x


def torch_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)


MAKERS: dict[str, Callable[[], nn.Module]] = {"call": Home, "multihead": torch_layer}


def gradients(model: Any, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(x).square().sum().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


@pytest.mark.parametrize("mode", ["reentrant", "not"])
@pytest.mark.parametrize("kind", list(MAKERS))
def test_recomputing_a_layer_recomputes_the_patched_attention(kind: str, mode: str) -> None:
    x = torch.randn(3, 6, E, requires_grad=True)
    plain = gradients(Stack(MAKERS[kind]), x)
    with eureka.patch(model := Stack(MAKERS[kind]), "norm_softmax"):
        wanted = gradients(model, x)
    with eureka.patch(again := Stack(MAKERS[kind], mode), "norm_softmax"):
        found = gradients(again, x)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    assert any(not torch.allclose(one, other) for one, other in zip(found, plain, strict=True))


@pytest.mark.parametrize("reentrant", [True, False])
def test_hugging_face_checkpointing_recomputes_the_patched_attention(reentrant: bool, case: Callable[..., Any]) -> None:
    it = case("gpt2", "right")
    with eureka.patch(it.model, "norm_softmax"):
        wanted = it.outputs_and_gradients()
        it.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        found = it.outputs_and_gradients()
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_patch_undone_between_forward_and_backward_still_gives_the_right_gradient() -> None:
    x = torch.randn(3, 6, E, requires_grad=True)
    with eureka.patch(model := Stack(Home), "norm_softmax"):
        wanted = gradients(model, x)
        model.zero_grad()
        loss = model(x).square().sum()
    loss.backward()
    found = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


@pytest.fixture
def clean_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")  # the compiler warns about what it does itself
@pytest.mark.usefixtures("clean_dynamo")
@pytest.mark.parametrize("kind", ["call", "multihead"])
def test_a_compiled_model_runs_the_operator_and_forgets_it_when_undone(kind: str) -> None:
    model, x = Stack(MAKERS[kind]), torch.randn(3, 6, E)
    plain = gradients(model, x)
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, x), plain)
    with eureka.patch(model, "norm_softmax") as patched:
        wanted = gradients(model, x)
        torch.testing.assert_close(gradients(compiled, x), wanted)
        assert len(patched.sites) == 2
    assert not torch.allclose(wanted[0], plain[0])
    torch.testing.assert_close(gradients(compiled, x), plain)


@pytest.mark.filterwarnings("ignore")  # the compiler warns about what it does itself
@pytest.mark.usefixtures("clean_dynamo")
@pytest.mark.parametrize("family", ["gpt2", "bert"])
def test_a_compiled_hugging_face_model_is_one_graph_and_runs_the_operator(family: str, case: Callable[..., Any]) -> None:
    it = case(family)
    with eureka.patch(it.model, "norm_softmax"):
        wanted = it.model(**it.inputs).logits
        compiled: Callable[..., Any] = torch.compile(it.model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(**it.inputs).logits, wanted)
    assert not torch.allclose(it.model(**it.inputs).logits, wanted)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_autocast_changes_the_type_and_not_the_answer(kind: str) -> None:
    model, x = Stack(MAKERS[kind]), torch.randn(3, 6, E)
    with eureka.patch(model, "norm_softmax"):
        wanted = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = model(x)
            found.float().square().sum().backward()
    torch.testing.assert_close(found.float(), wanted, rtol=0.1, atol=0.1)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_autocast_reaches_a_hugging_face_model(case: Callable[..., Any]) -> None:
    it = case("bert", "right")
    it.model.float()
    with eureka.patch(it.model, "softmax"), torch.autocast("cpu", dtype=torch.bfloat16):
        found = it.outputs()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        wanted = it.outputs()
    torch.testing.assert_close(found.float(), wanted.float(), rtol=0.05, atol=0.05 * wanted.abs().max().item())


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'meeting'}", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("process_group")
@pytest.mark.parametrize("kind", list(MAKERS))
def test_distributed_training_sees_the_patch_and_the_parameters_it_brings(kind: str) -> None:
    x = torch.randn(3, 6, E)
    with eureka.patch(model := Stack(MAKERS[kind]), "norm_softmax"):
        wanted = gradients(model, x)
        torch.testing.assert_close(gradients(nn.parallel.DistributedDataParallel(model), x), wanted)
    wrapped = nn.parallel.DistributedDataParallel(Stack(MAKERS[kind]))
    with eureka.patch(wrapped, "norm_softmax"):
        torch.testing.assert_close(gradients(wrapped, x), wanted)
    learned = eureka.make_operator("learnable_temperature", heads=H, head_dim=E // H)
    with pytest.raises(RequestError, match="patch before wrapping"):
        eureka.patch(wrapped, learned)
    with eureka.patch(fresh := Stack(MAKERS[kind]), learned) as patched:
        gradients(nn.parallel.DistributedDataParallel(fresh), x)
        assert all(parameter.grad is not None for parameter in patched.parameters())


def encoder() -> nn.TransformerEncoder:
    """The encoder of the README."""
    layer = nn.TransformerEncoderLayer(64, nhead=4, batch_first=True)
    return nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)


def graphs(fix: str | None, lengths: Sequence[int]) -> int:
    """How many graphs a compiled encoder takes for batches of these lengths."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    model = encoder()
    compiled = torch.compile(model, backend=counter)
    with contextlib.nullcontext() if fix is None else eureka.patch(model, fix):
        for length in lengths:
            compiled(torch.randn(2, length, 64)).sum().backward()
    return int(counter.frame_count)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("clean_dynamo")
def test_a_compiled_encoder_takes_at_most_one_graph_more_than_without_a_patch() -> None:
    lengths = [16, 16, 24, 60, 200, 260, 16]  # on both sides of the limits under which explicit weights are taken
    assert graphs("norm_softmax", lengths) <= graphs(None, lengths) + 1
    assert graphs("norm_softmax", [16] * 4) == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("clean_dynamo")
def test_generating_with_a_compiled_static_cache_takes_the_graphs_and_words_of_generating_without(
    case: Callable[..., Any],
) -> None:
    it = case("llama")
    it.model.eval()
    options = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    with eureka.patch(it.model, "norm_softmax"):
        wanted = it.model.generate(**it.inputs, **options)
        counter = CompileCounterWithBackend("eager")
        it.model.forward = torch.compile(it.model.forward, backend=counter, fullgraph=True)
        found = it.model.generate(**it.inputs, **options, cache_implementation="static", disable_compile=True)
        del it.model.forward
    assert torch.equal(found, wanted)
    assert counter.frame_count <= 3  # unpatched two: the prompt, and one token after another


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("clean_dynamo")
@pytest.mark.parametrize("fix", ["softmax", "norm_softmax"])
def test_an_exported_model_takes_other_batches_and_lengths(fix: str) -> None:
    model = encoder().eval()
    batch, tokens = torch.export.Dim("batch", min=2, max=64), torch.export.Dim("tokens", min=2, max=500)
    with eureka.patch(model, fix):
        exported = torch.export.export(model, (torch.randn(2, 16, 64),), dynamic_shapes=({0: batch, 1: tokens},)).module()
        x = torch.randn(3, 230, 64)
        torch.testing.assert_close(exported(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", list(MAKERS))
def test_the_check_of_the_first_call_changes_neither_random_numbers_nor_gradients(kind: str) -> None:
    x, found = torch.randn(3, 6, E), []
    for check in (True, False):
        model = Stack(
            lambda: nn.TransformerEncoderLayer(E, H, 16, dropout=0.5, batch_first=True) if kind == "multihead" else Home()
        )
        with eureka.patch(model, "norm_softmax", check=check):
            torch.manual_seed(3)
            found.append([*gradients(model, x), torch.rand(3)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("checkpointing", [True, False])
def test_the_check_of_the_first_call_is_done_with_dropout_and_checkpointing(
    checkpointing: bool, case: Callable[..., Any]
) -> None:
    it = case("gpt2", "right")
    it.model.config.attn_pdrop = 0.3
    for module in it.model.modules():
        if hasattr(module, "attn_dropout"):
            module.attn_dropout.p = 0.3
    if checkpointing:
        it.model.gradient_checkpointing_enable({"use_reentrant": False})
    found = []
    for check in (True, False):
        with eureka.patch(it.model, "norm_softmax", check=check):
            torch.manual_seed(0)
            found.append(it.outputs_and_gradients())
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("fix", ["sinkhorn", "qr"])
def test_an_operator_whose_rows_depend_on_each_other_is_refused_behind_a_causal_mask_only(fix: str) -> None:
    x, causal = torch.randn(2, 5, E), nn.Transformer.generate_square_subsequent_mask(5)
    with eureka.patch(Home(), fix) as patched, pytest.raises(RequestError, match="is not causal: what a token attends to"):
        patched.model(x)
    with eureka.patch(torch_layer(), fix) as patched:
        hidden = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
        assert patched.model(x, src_key_padding_mask=hidden).isfinite().all()
        with pytest.raises(RequestError, match="is not causal"):
            patched.model(x, src_mask=causal)
    with eureka.patch(nn.MultiheadAttention(E, H, batch_first=True), fix) as patched:
        padded = torch.tensor([False] * 7 + [True] * 5).expand(2, -1)  # as of an encoder
        keys = torch.randn(2, 12, E)
        assert patched.model(x, keys, keys, key_padding_mask=padded, attn_mask=torch.zeros(5, 12).bool())[0].isfinite().all()


def test_an_operator_that_needs_heads_that_nobody_says_is_asked_for_in_a_way_that_works() -> None:
    model, x = Home(), torch.randn(2, 5, E)
    with pytest.raises(RequestError) as caught:
        eureka.patch(model, "learnable_temperature")
    assert str(caught.value) == (
        "'learnable_temperature' needs the number of heads and the size of a head, which the model (Home) does not say;"
        " pass eureka.make_operator('learnable_temperature', heads=…, head_dim=…) in its place."
    )
    with eureka.patch(model, eureka.make_operator("learnable_temperature", heads=H, head_dim=E // H)):
        assert model(x).isfinite().all()


@pytest.mark.parametrize("steps", [0, -5, "100", 2.5])
def test_a_length_of_training_that_is_none_is_refused(steps: Any) -> None:
    with pytest.raises(RequestError, match="total_steps must be a whole number of 1 or more, not "):
        eureka.patch(torch_layer(), "heat_treatment", total_steps=steps)


@pytest.mark.filterwarnings("ignore")  # the compiler warns about what it does itself
def test_a_compiled_model_is_refused_an_operator_that_is_not_causal() -> None:
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True)
    with eureka.patch(layer, "sinkhorn"):
        compiled: Any = torch.compile(layer, backend="eager")
        with pytest.raises(Exception, match="is not causal"):
            compiled(torch.randn(2, 5, E), src_mask=nn.Transformer.generate_square_subsequent_mask(5))


@pytest.mark.parametrize("steps", [np.int64(1000), 1000.0])
def test_a_length_of_training_may_be_any_whole_number(steps: Any) -> None:
    eureka.patch(torch_layer(), "heat_treatment", total_steps=steps).undo()
