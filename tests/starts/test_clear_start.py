"""Clear start: what was asked is there afterwards, in every family, and nothing else has changed."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import eureka
from eureka.attention.norm_softmax import NormSoftmax
from eureka.attention.operator import Operator, make_operator
from eureka.errors import RequestError
from eureka.models.decoder import Decoder, DecoderSettings
from eureka.models.encoder import Encoder, EncoderSettings, ViT, ViTSettings

WORDS, TOKENS, BATCH = 40, 9, 6
Twin = Callable[[Any, Any], list[float]]


# Slow twins: ratios from the tensors that are added, spreads from explicit logits.


def rms(x: Tensor) -> float:
    return math.sqrt(sum(value * value for value in x.double().flatten().tolist()) / x.numel())


def ratio(positions: Tensor, content: Tensor) -> list[float]:
    return [rms(positions.expand_as(content)) / rms(content)]


def spreads_of_logits(logits: Tensor, visible: Tensor) -> list[float]:
    """(B, H, Q, K) → a number for each head, row by row."""
    means = []
    for head in logits.unbind(1):
        seen = visible.expand_as(logits)[:, 0].flatten(0, 1)
        rows = [row[keys] for row, keys in zip(head.flatten(0, 1), seen, strict=True)]
        each = [float(row.double().std(correction=0)) for row in rows if len(row) >= 2]
        means.append(sum(each) / len(each))
    return means


def explicit_logits(q: Tensor, k: Tensor, causal: bool) -> list[float]:
    """(B, H, N, D) each."""
    visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)
    return spreads_of_logits(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]), visible.tril() if causal else visible)


def spreads_of_fused(model: nn.Module, inputs: Any, *, heads: int = 2, causal: bool = False) -> list[float]:
    """From the outputs of every layer called qkv."""
    outputs: list[Tensor] = []
    layers = [module for name, module in model.named_modules() if name.endswith("qkv")]
    hooks = [layer.register_forward_hook(lambda _, __, out: outputs.append(out)) for layer in layers]
    with torch.no_grad():
        copy_of_mode(model, inputs)
    for hook in hooks:
        hook.remove()
    found = []
    for out in outputs:
        q, k, _ = (
            out.double()
            .unflatten(  # type: ignore[no-untyped-call]
                -1, (3, heads, -1)
            )
            .permute(2, 0, 3, 1, 4)
        )
        found += explicit_logits(q, k, causal)
    return found


def copy_of_mode(model: nn.Module, inputs: Any) -> Any:
    training = model.training
    model.eval()
    out = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    model.train(training)
    return out


def spreads_of_weights(model: Any, inputs: Mapping[str, Tensor]) -> list[float]:
    """Log-weights differ from logits by a constant of the row: so their spread is that of the logits, rotary or not."""
    slow = copy.deepcopy(model).double().eval()
    slow.set_attn_implementation("eager")
    given = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    with torch.no_grad():
        out = slow(**given, output_attentions=True)
    found = []
    if (encoder := getattr(out, "encoder_attentions", None)) is not None:
        for own, cross in zip(out.decoder_attentions, out.cross_attentions, strict=True):
            encoder = (*encoder, own, cross)
    for weights in encoder or out.attentions:
        found += spreads_of_logits(weights.log(), weights > 0)
    return found


def spreads_of_multihead(model: Behind, inputs: Tensor) -> list[float]:
    found = []
    model = copy.deepcopy(model).double().eval()
    with torch.no_grad():
        x = model.embedded(inputs.double())
        for layer in model.body.layers:
            assert isinstance(layer, nn.TransformerEncoderLayer)
            weights = layer.self_attn(x, x, x, average_attn_weights=False)[1]
            assert weights is not None
            found += spreads_of_logits(weights.log(), weights > 0)
            x = layer(x)
    return found


# Models.


class Behind(nn.Module):
    """torch.nn.TransformerEncoder behind a linear embedding and home-made positions."""

    def __init__(self, batch_first: bool = True, positions: bool = True) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.embed = nn.Linear(5, 16)
        self.place = nn.Parameter(0.02 * torch.randn(TOKENS, 16)) if positions else None
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def embedded(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        if self.place is not None:
            x = x + (self.place if self.batch_first else self.place[:, None])
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.body(self.embedded(x))  # type: ignore[no-any-return]


class FusedAttention(nn.Module):
    def __init__(self, dim: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class HomeMade(nn.Module):
    """Fused qkv; positions from a lookup, added in place; optionally checkpointed, or with something odd."""

    def __init__(self, *, checkpointed: bool = False, fixed: bool = False, zero: bool = False, counted: bool = False) -> None:
        super().__init__()
        self.checkpointed, self.fixed, self.counted = checkpointed, fixed, counted
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Embedding(32, 16)
        if zero:
            nn.init.zeros_(self.places.weight)
        self.register_buffer("pe", torch.randn(32, 16))
        self.register_buffer("calls", torch.zeros(()))
        self.blocks = nn.ModuleList(FusedAttention() for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.drop = nn.Dropout(0.5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        x += self.get_buffer("pe")[: ids.shape[1]] if self.fixed else self.places(torch.arange(ids.shape[1]))
        self.get_buffer("calls").add_(self.counted)
        for block, norm in zip(self.blocks, self.norms, strict=True):
            x = x + (checkpoint(block, norm(x), use_reentrant=False) if self.checkpointed else block(norm(x)))
        return self.drop(x)  # type: ignore[no-any-return]


def softmax(heads: int, head_dim: int) -> Operator:
    return make_operator("softmax", heads=heads, head_dim=head_dim)


def ids(batch: int = BATCH) -> Tensor:
    return torch.randint(3, WORDS, (batch, TOKENS), generator=torch.Generator().manual_seed(1))


def features(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def text_sizes(**more: Any) -> dict[str, Any]:
    sizes = {"vocab_size": WORDS, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    return {**sizes, **more}


def hugging_face(name: str, config: str, **sizes: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, name)(getattr(transformers, config)(**sizes))


@dataclass
class Case:
    make: Callable[[], nn.Module]
    inputs: Callable[[], Any]
    ratios: Twin
    spreads: Twin

    def made(self) -> tuple[nn.Module, Any]:
        torch.manual_seed(0)
        return self.make(), self.inputs()


def ratios_of_ours(model: Any, x: Tensor) -> list[float]:
    content = model.embed(x)
    if model.cls is not None:
        content = torch.cat([model.cls.expand(len(x), -1, -1), content], dim=1)
    return ratio(model.positions, content)


def ratios_of_vit(model: Any, inputs: Mapping[str, Tensor]) -> list[float]:
    e = model.vit.embeddings
    patches = e.patch_embeddings(inputs["pixel_values"])
    return ratio(e.position_embeddings, torch.cat([e.cls_token.expand(len(patches), -1, -1), patches], dim=1))


def ratios_of_deit(model: Any, inputs: Mapping[str, Tensor]) -> list[float]:
    e = model.embeddings
    patches = e.patch_embeddings(inputs["pixel_values"])
    first = torch.cat([e.cls_token, e.distillation_token], dim=1).expand(len(patches), -1, -1)
    return ratio(e.position_embeddings, torch.cat([first, patches], dim=1))


def ratios_of_bert(model: Any, inputs: Mapping[str, Tensor], first: int = 0) -> list[float]:
    e = model.base_model.embeddings
    content = e.word_embeddings.weight[inputs["input_ids"]] + e.token_type_embeddings.weight[0]
    return ratio(e.position_embeddings.weight[first : first + TOKENS], content)


def ratios_of_gpt2(model: Any, inputs: Mapping[str, Tensor]) -> list[float]:
    return ratio(model.transformer.wpe.weight[:TOKENS], model.transformer.wte.weight[inputs["input_ids"]])


def ratios_of_bart(model: Any, inputs: Mapping[str, Tensor]) -> list[float]:
    words, (encoder, decoder) = model.model.shared.weight, (model.model.encoder, model.model.decoder)
    place = [part.embed_positions.weight[2 : 2 + TOKENS] for part in (encoder, decoder)]
    return ratio(place[0], words[inputs["input_ids"]]) + ratio(place[1], words[inputs["decoder_input_ids"]])


def no_ratios(model: Any, inputs: Any) -> list[float]:
    return []


def ratios_behind(model: Behind, inputs: Tensor) -> list[float]:
    assert model.place is not None
    return ratio(model.place if model.batch_first else model.place[:, None], model.embed(inputs))


def ratios_at_home(model: HomeMade, inputs: Tensor) -> list[float]:
    return ratio(model.places.weight[:TOKENS], model.words(inputs))


def text() -> dict[str, Tensor]:
    return {"input_ids": ids()}


SMALL: dict[str, Any] = {"dim": 16, "depth": 2, "heads": 2}
GPT2 = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "bos_token_id": 1, "eos_token_id": None}
LLAMA = text_sizes(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=None)
BART = {"vocab_size": WORDS, "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
BART |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 32}
VIT = {
    "patch_size": 4,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 12,
}
NEOX = text_sizes(bos_token_id=1, eos_token_id=None, pad_token_id=0)

CASES = {
    "encoder": Case(
        lambda: Encoder((TOKENS, 5), 3, softmax, settings=EncoderSettings(**SMALL)),
        lambda: features(BATCH, TOKENS, 5),
        ratios_of_ours,
        spreads_of_fused,
    ),
    "our vit": Case(
        lambda: ViT((3, 12, 12), 3, softmax, settings=ViTSettings(**SMALL)),
        lambda: features(BATCH, 3, 12, 12),
        ratios_of_ours,
        spreads_of_fused,
    ),
    "decoder, tied": Case(
        lambda: Decoder((TOKENS,), WORDS, softmax, WORDS, True, settings=DecoderSettings(**SMALL, tied=True)),
        ids,
        ratios_of_ours,
        partial(spreads_of_fused, causal=True),
    ),
    "vit": Case(
        lambda: hugging_face("ViTForImageClassification", "ViTConfig", **VIT),
        lambda: {"pixel_values": features(BATCH, 3, 12, 12)},
        ratios_of_vit,
        spreads_of_weights,
    ),
    "deit, from zero": Case(
        lambda: hugging_face("DeiTModel", "DeiTConfig", **VIT),
        lambda: {"pixel_values": features(BATCH, 3, 12, 12)},
        ratios_of_deit,
        spreads_of_weights,
    ),
    "bert": Case(lambda: hugging_face("BertForMaskedLM", "BertConfig", **text_sizes()), text, ratios_of_bert, spreads_of_weights),
    "roberta": Case(
        lambda: hugging_face("RobertaForMaskedLM", "RobertaConfig", **text_sizes(max_position_embeddings=32)),
        text,
        partial(ratios_of_bert, first=2),
        spreads_of_weights,
    ),
    "gpt2": Case(lambda: hugging_face("GPT2LMHeadModel", "GPT2Config", **GPT2), text, ratios_of_gpt2, spreads_of_weights),
    "bart": Case(
        lambda: hugging_face("BartForConditionalGeneration", "BartConfig", **BART),
        lambda: {"input_ids": ids(), "decoder_input_ids": ids().flip(0, 1)},
        ratios_of_bart,
        spreads_of_weights,
    ),
    "llama, grouped and rotary": Case(
        lambda: hugging_face("LlamaForCausalLM", "LlamaConfig", **LLAMA), text, no_ratios, spreads_of_weights
    ),
    "gpt-neox, interleaved": Case(
        lambda: hugging_face("GPTNeoXForCausalLM", "GPTNeoXConfig", **NEOX), text, no_ratios, spreads_of_weights
    ),
    "torch.nn": Case(Behind, lambda: features(BATCH, TOKENS, 5), ratios_behind, spreads_of_multihead),
    "torch.nn, tokens first": Case(
        lambda: Behind(batch_first=False), lambda: features(TOKENS, BATCH, 5), ratios_behind, spreads_of_multihead
    ),
    "home-made, fused": Case(HomeMade, ids, ratios_at_home, spreads_of_fused),
}
WITHOUT_POSITIONS = ("llama, grouped and rotary", "gpt-neox, interleaved")


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def state(model: nn.Module) -> dict[str, Tensor]:
    tensors = (*model.named_parameters(remove_duplicate=False), *model.named_buffers())
    return {name: tensor.detach().clone() for name, tensor in tensors}


def changed(model: nn.Module, before: dict[str, Tensor]) -> set[str]:
    return {name for name, tensor in state(model).items() if not torch.equal(tensor, before[name])}


def check_against_twins(case: Case, model: nn.Module, inputs: Any, positions: float, logits: float) -> None:
    with torch.no_grad():
        for found in case.ratios(model, inputs):
            assert found == pytest.approx(positions, rel=0.01)
    spreads = case.spreads(model, inputs)
    assert len(spreads) >= 4
    assert spreads == pytest.approx([logits] * len(spreads), rel=0.01)


# Claims about every family.


@pytest.mark.parametrize(("positions", "logits"), [(1.0, 1.0), (0.5, 2.0)])
def test_ratio_and_spread_are_what_was_asked(case: Case, positions: float, logits: float) -> None:
    model, inputs = case.made()
    eureka.clear_start(model, inputs, positions=positions, logits=logits)
    check_against_twins(case, model, inputs, positions, logits)


def test_the_result_says_what_the_slow_twins_say_before_and_after(case: Case) -> None:
    model, inputs = case.made()
    with torch.no_grad():
        ratios, spreads = case.ratios(model, inputs), case.spreads(model, inputs)
    start = eureka.clear_start(model, inputs)
    assert [row.before for row in start.positions] == pytest.approx(ratios, rel=1e-4)
    assert [spread for row in start.logits for spread in row.before] == pytest.approx(spreads, rel=1e-3)
    assert [row.after for row in start.positions] == pytest.approx(case.ratios(model, inputs), rel=1e-4)
    assert [spread for row in start.logits for spread in row.after] == pytest.approx(case.spreads(model, inputs), rel=1e-3)


def test_the_position_share_is_that_of_the_slow_twin_and_clear_start_sets_it(case: Case) -> None:
    model, inputs = case.made()
    before = state(model)
    share = eureka.position_share(model, inputs)
    assert not changed(model, before)
    assert all(-0.2 < each <= 1 for each in share.logits)
    with torch.no_grad():
        ratios = case.ratios(model, inputs)[:1]  # the first attention of BART is that of its encoder
    assert ([] if math.isnan(share.ratio) else [share.ratio]) == pytest.approx(ratios, rel=1e-4)
    assert (share.note is None) == bool(ratios)
    if ratios:
        eureka.clear_start(model, inputs, positions=2.0, logits=None)
        assert eureka.position_share(model, inputs).of_input == pytest.approx(0.8, rel=0.01)


def test_undo_puts_every_bit_back_and_a_second_undo_does_nothing(case: Case) -> None:
    model, inputs = case.made()
    before = state(model)
    start = eureka.clear_start(model, inputs)
    assert changed(model, before)
    start.undo()
    assert changed(model, before) == set()
    with torch.no_grad():
        next(iter(model.parameters())).add_(1.0)
    later = state(model)
    start.undo()
    assert changed(model, later) == set()


def test_a_second_call_changes_nothing(case: Case) -> None:
    model, inputs = case.made()
    first = eureka.clear_start(model, inputs)
    before = state(model)
    second = eureka.clear_start(model, inputs)
    assert changed(model, before) == set()
    assert (
        [row.before for row in second.positions]
        == [row.after for row in second.positions]
        == [row.after for row in first.positions]
    )
    assert second.logits[0].before == second.logits[0].after
    second.undo()
    assert changed(model, before) == set()


def test_only_positions_and_query_and_key_weights_change(case: Case) -> None:
    model, inputs = case.made()
    before = state(model)
    start = eureka.clear_start(model, inputs)
    expected = {name for row in start.positions for name in row.parameters}
    others = changed(model, before) - expected
    assert len(others) >= 2
    words = ("qkv", "query", "key", "q_proj", "k_proj", "c_attn", "in_proj")
    assert [name for name in others if not any(word in name for word in words)] == []


@pytest.mark.parametrize("training", [True, False])
def test_mode_random_state_gradients_hooks_and_classes_stay(case: Case, training: bool) -> None:
    model, inputs = case.made()
    model.train(training)
    parameters = list(model.parameters())
    parameters[0].requires_grad_(False)
    parameters[1].grad = torch.ones_like(parameters[1])
    wanted = [parameter.requires_grad for parameter in parameters]
    modes, kinds = [m.training for m in model.modules()], [type(m) for m in model.modules()]
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    random = torch.get_rng_state()
    eureka.clear_start(model, inputs)
    assert [m.training for m in model.modules()] == modes
    assert [type(m) for m in model.modules()] == kinds
    assert [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()] == hooks
    assert torch.equal(torch.get_rng_state(), random)
    assert [parameter.requires_grad for parameter in parameters] == wanted
    assert all(a is b for a, b in zip(model.parameters(), parameters, strict=True))
    assert parameters[1].grad is not None
    assert torch.equal(parameters[1].grad, torch.ones_like(parameters[1]))
    assert torch.is_grad_enabled()


def test_a_batch_of_one_and_a_batch_of_equal_samples_are_enough(case: Case) -> None:
    for copies in (1, 4):
        model, inputs = case.made()
        axis = 1 if isinstance(model, Behind) and not model.batch_first else 0

        def alike(x: Tensor, axis: int = axis, copies: int = copies) -> Tensor:
            return torch.cat([x.narrow(axis, 0, 1)] * copies, dim=axis)

        one = {key: alike(value) for key, value in inputs.items()} if isinstance(inputs, Mapping) else alike(inputs)
        eureka.clear_start(model, one)
        check_against_twins(case, model, one, 1.0, 1.0)


def test_bfloat16_comes_within_one_percent_and_stays_there(case: Case) -> None:
    model, inputs = case.made()
    model = model.bfloat16()
    half = partial(torch.Tensor.to, dtype=torch.bfloat16)
    turn: Callable[[Tensor], Tensor] = lambda x: half(x) if x.is_floating_point() else x  # noqa: E731
    inputs = {key: turn(value) for key, value in inputs.items()} if isinstance(inputs, Mapping) else turn(inputs)
    start = eureka.clear_start(model, inputs)
    for found in [row.after for row in start.positions] + [spread for row in start.logits for spread in row.after]:
        assert found == pytest.approx(1.0, rel=0.01)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}
    before = state(model)
    eureka.clear_start(model, inputs)
    assert changed(model, before) == set()


# Single claims.


def test_inside_autocast_the_weights_of_now_are_measured_and_stay_after_a_second_call() -> None:
    model, inputs = CASES["home-made, fused"].made()
    with torch.autocast("cpu", torch.bfloat16):
        before = model.eval()(inputs)  # autocast keeps the weights of this pass
        start = eureka.clear_start(model, inputs)
        assert [spread for row in start.logits for spread in row.after] == pytest.approx([1.0] * 4, rel=0.01)
        assert [row.after for row in start.positions] == pytest.approx([1.0], rel=0.01)
        once, rescaled = state(model), model(inputs)
        eureka.clear_start(model, inputs)
        assert changed(model, once) == set()
        assert torch.equal(model(inputs), rescaled)
        start.undo()
        assert torch.equal(model(inputs), before)


@pytest.mark.parametrize("name", ["gpt2", "decoder, tied", "bert"])
def test_a_head_that_is_tied_to_the_tokens_stays_tied_and_unchanged(name: str) -> None:
    model, inputs = CASES[name].made()
    tied = [parameter for parameter in model.parameters() if parameter.shape == (WORDS, 16)]
    assert len(tied) == 1
    names = [key for key, parameter in model.named_parameters(remove_duplicate=False) if parameter is tied[0]]
    assert len(names) == 2
    before = tied[0].detach().clone()
    eureka.clear_start(model, inputs)
    assert [key for key, parameter in model.named_parameters(remove_duplicate=False) if parameter is tied[0]] == names
    assert torch.equal(tied[0], before)


def test_a_model_with_gradient_checkpointing_starts_like_one_without() -> None:
    torch.manual_seed(0)
    plain = HomeMade()
    checkpointed = HomeMade(checkpointed=True)
    checkpointed.load_state_dict(plain.state_dict())
    for model in (plain, checkpointed):
        eureka.clear_start(model.train(), ids())
    assert changed(checkpointed, state(plain)) == set()
    bert, inputs = CASES["bert"].made()
    bert.gradient_checkpointing_enable()  # type: ignore[operator]
    bert.train()
    eureka.clear_start(bert, inputs)
    check_against_twins(CASES["bert"], bert, inputs, 1.0, 1.0)
    assert bert.is_gradient_checkpointing


def test_each_part_can_be_switched_off() -> None:
    model, inputs = CASES["home-made, fused"].made()
    before = state(model)
    start = eureka.clear_start(model, inputs, logits=None)
    assert changed(model, before) == {"places.weight"}
    assert not start.logits
    start.undo()
    assert not eureka.clear_start(model, inputs, positions=None).positions
    names = {f"blocks.{i}.qkv.{part}" for i in range(2) for part in ("weight", "bias")}
    assert changed(model, before) == names


class WithOneMoreKey(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True, add_bias_kv=True)
        assert self.attention.bias_k is not None
        nn.init.normal_(self.attention.bias_k, std=1.0)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]  # type: ignore[no-any-return]


def test_a_learned_key_that_w_k_does_not_make_is_allowed_for() -> None:
    torch.manual_seed(0)
    model, x = WithOneMoreKey().eval(), features(BATCH, TOKENS, 16)
    eureka.clear_start(model, x, positions=None)
    with torch.no_grad():
        weights = model.attention(x, x, x, average_attn_weights=False)[1]
    assert weights.shape[-1] == TOKENS + 1
    assert spreads_of_logits(weights.log(), weights > 0) == pytest.approx([1.0, 1.0], rel=0.01)


class Filled(HomeMade):
    """Data are written over a copy of the positions."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.places.weight[: ids.shape[1]].repeat(len(ids), 1, 1)
        x[:] = F.one_hot(ids % 16, 16).float()
        return self.blocks[0](x + self.places.weight[: ids.shape[1]])  # type: ignore[no-any-return]


def test_a_tensor_that_data_are_written_into_no_longer_comes_from_parameters() -> None:
    torch.manual_seed(0)
    start = eureka.clear_start(Filled(), ids(), logits=None)
    assert [row.parameters for row in start.positions] == [("places.weight",)]


def test_values_keep_every_bit_in_a_fused_projection() -> None:
    model, inputs = CASES["home-made, fused"].made()
    before = state(model)
    eureka.clear_start(model, inputs)
    for name in ("blocks.0.qkv.weight", "blocks.0.qkv.bias"):
        assert torch.equal(model.get_parameter(name)[32:], before[name][32:])
        assert not torch.equal(model.get_parameter(name)[:32], before[name][:32])


def test_queries_and_keys_of_a_head_are_scaled_alike_and_grouped_keys_by_the_geometric_mean() -> None:
    model, inputs = CASES["llama, grouped and rotary"].made()
    before = state(model)
    row = eureka.clear_start(model, inputs).logits[0]
    grown = []
    for name in ("q_proj", "k_proj"):
        name = f"{row.site}.{name}.weight"
        grown.append((model.get_parameter(name) / before[name]).reshape(-1, 8 * 32).mean(dim=1))
    each = torch.tensor(row.before).reciprocal()
    keys = each.reshape(2, 2).prod(dim=1) ** 0.25
    torch.testing.assert_close(grown[1], keys, rtol=1e-3, atol=0)
    torch.testing.assert_close(grown[0], each / keys.repeat_interleave(2), rtol=1e-3, atol=0)


def test_a_buffer_that_the_forward_pass_changes_is_put_back() -> None:
    torch.manual_seed(0)
    model = HomeMade(counted=True)
    buffer = model.get_buffer("calls")
    eureka.clear_start(model, ids())
    assert model.get_buffer("calls") is buffer
    assert buffer.item() == 0.0
    model(ids())
    assert buffer.item() == 1.0


class Replacing(HomeMade):
    """Its buffer is another tensor after each pass."""

    def forward(self, ids: Tensor) -> Tensor:
        self.calls = self.get_buffer("calls") + 1
        return super().forward(ids)


def test_a_buffer_that_the_forward_pass_replaces_is_put_back() -> None:
    torch.manual_seed(0)
    model = Replacing()
    buffer = model.get_buffer("calls")
    eureka.clear_start(model, ids())
    assert model.get_buffer("calls") is buffer
    assert buffer.item() == 0.0


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_padding_on_the_right_does_not_hide_the_positions(name: str) -> None:
    model, inputs = CASES[name].made()
    lengths = torch.tensor([9, 5, 7, 9, 6, 8])[:, None]
    mask = (torch.arange(TOKENS) < lengths).long()
    padding = 1 if name == "roberta" else 0
    start = eureka.clear_start(
        model, {"input_ids": torch.where(mask.bool(), inputs["input_ids"], padding), "attention_mask": mask}
    )
    assert [row.after for row in start.positions] == pytest.approx([1.0], rel=0.01)
    assert start.positions[0].parameters[0].endswith("position_embeddings.weight")


def test_positions_that_padding_on_the_left_shifts_are_found() -> None:
    model, inputs = CASES["roberta"].made()
    mask = (torch.arange(TOKENS) >= torch.tensor([0, 7, 2, 5, 3, 1])[:, None]).long()
    padded = torch.where(mask.bool(), inputs["input_ids"], 1)
    start = eureka.clear_start(model, {"input_ids": padded, "attention_mask": mask}, positions=0.5, logits=None)
    assert [row.parameters for row in start.positions] == [("roberta.embeddings.position_embeddings.weight",)]
    e = cast(Any, model).base_model.embeddings
    places = torch.tensor([[1 + max(0, number + 1 - int(first)) for number in range(TOKENS)] for first in (mask == 0).sum(dim=1)])
    content = e.word_embeddings.weight[padded] + e.token_type_embeddings.weight[0]
    real = mask.bool()
    assert ratio(e.position_embeddings.weight[places][real], content[real]) == pytest.approx([0.5], rel=0.01)


def padded(padding: int, lengths: range, length: int = 128) -> tuple[dict[str, Tensor], Tensor]:
    """A batch that is padded to a fixed length, and which tokens are real."""
    real = torch.arange(length) < torch.tensor(list(lengths))[:, None]
    words = torch.randint(3, WORDS, real.shape, generator=torch.Generator().manual_seed(1))
    return {"input_ids": torch.where(real, words, padding), "attention_mask": real.long()}, real


def real_ratio(model: Any, inputs: Mapping[str, Tensor], real: Tensor, places: Tensor) -> float:
    e = model.base_model.embeddings
    content = e.word_embeddings.weight[inputs["input_ids"]] + e.token_type_embeddings.weight[0]
    (found,) = ratio(e.position_embeddings.weight[places][real], content[real])
    return found


@pytest.mark.parametrize(("name", "padding"), [("bert", 0), ("roberta", 1)])
def test_positions_are_found_and_measured_among_the_tokens_that_are_no_padding(name: str, padding: int) -> None:
    torch.manual_seed(0)
    kind = {"bert": "Bert", "roberta": "Roberta"}[name]
    model = hugging_face(f"{kind}ForMaskedLM", f"{kind}Config", **text_sizes(max_position_embeddings=140))
    inputs, real = padded(padding, range(20, 36, 3))
    places = torch.arange(128).expand(len(real), -1) if name == "bert" else real.cumsum(dim=1) * real + 1
    before = real_ratio(model, inputs, real, places)
    start = eureka.clear_start(model, inputs)
    assert [row.before for row in start.positions] == pytest.approx([before], rel=1e-4)
    assert real_ratio(model, inputs, real, places) == pytest.approx(1.0, rel=0.01)
    assert eureka.position_share(model, inputs).ratio == pytest.approx(1.0, rel=0.01)
    assert start.notes == (f"positions are measured without padding: over {real.sum()} of {real.numel()} tokens.",)
    once = state(model)
    eureka.clear_start(model, inputs)
    assert changed(model, once) == set()


def test_a_probe_leaves_the_same_padding_out() -> None:
    torch.manual_seed(0)
    model = hugging_face("BertForMaskedLM", "BertConfig", **text_sizes(max_position_embeddings=140)).eval()
    inputs, real = padded(0, range(20, 36, 3))
    with eureka.AttentionProbe(model) as probe, probe.look():
        model(**inputs)
    share = probe.records[0].position_share
    assert share is not None
    assert share.ratio == pytest.approx(real_ratio(model, inputs, real, torch.arange(128).expand(len(real), -1)), rel=1e-4)


def test_positions_that_stop_at_padding_are_found_without_a_mask() -> None:
    torch.manual_seed(0)
    model = hugging_face("RobertaForMaskedLM", "RobertaConfig", **text_sizes(max_position_embeddings=140))
    inputs, _ = padded(1, range(20, 36, 3))
    start = eureka.clear_start(model, inputs["input_ids"], logits=None)
    assert [row.parameters for row in start.positions] == [("roberta.embeddings.position_embeddings.weight",)]


def test_the_padding_of_a_decoder_is_left_out_of_its_own_positions() -> None:
    model, inputs = CASES["bart"].made()
    real = torch.arange(TOKENS) < torch.tensor([9, 3, 4, 5, 3, 4])[:, None]
    inputs = {**inputs, "attention_mask": real.flip(0).long(), "decoder_attention_mask": real.long()}
    eureka.clear_start(model, inputs, logits=None)
    words, parts = model.get_parameter("model.shared.weight"), ("encoder", "decoder")
    for part, ids_of, seen in zip(parts, ("input_ids", "decoder_input_ids"), (real.flip(0), real), strict=True):
        places = model.get_parameter(f"model.{part}.embed_positions.weight")[2 : 2 + TOKENS].expand(BATCH, -1, -1)
        assert ratio(places[seen], words[inputs[ids_of]][seen]) == pytest.approx([1.0], rel=0.01)


class Crossed(nn.Module):
    """A row and a column are added one after the other, in a plane or to a line of tokens."""

    def __init__(self, *, flat: bool, zero: bool = False) -> None:
        super().__init__()
        self.flat, self.embed = flat, nn.Linear(5, 16)
        self.row, self.column = (nn.Parameter((0.0 if zero else 0.02) * torch.randn(shape)) for shape in ((3, 1, 16), (1, 4, 16)))
        self.attention = FusedAttention()

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        if self.flat:
            row, column = (part.expand(3, 4, -1).flatten(0, 1) for part in (self.row, self.column))
            return self.attention(x.flatten(1, 2) + row + column)  # type: ignore[no-any-return]
        return self.attention((x + self.row + self.column).flatten(1, 2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("batch", [1, BATCH])
def test_rows_and_columns_that_are_added_one_by_one_are_positions_together(flat: bool, zero: bool, batch: int) -> None:
    torch.manual_seed(0)
    model, x = Crossed(flat=flat, zero=zero), features(batch, 3, 4, 5)
    start = eureka.clear_start(model, x)
    assert [(row.parameters, row.drawn) for row in start.positions] == [(("row", "column"), zero)]
    with torch.no_grad():
        assert ratio(model.row + model.column, model.embed(x)) == pytest.approx([1.0], rel=0.01)
    if batch > 1:
        assert eureka.position_share(model, x).ratio == pytest.approx(1.0, rel=0.01)


class TwiceSegmented(HomeMade):
    """Two kinds of segments, added one after the other, and no positions."""

    def forward(self, ids: Tensor) -> Tensor:
        place = torch.arange(ids.shape[1])
        x = self.words(ids) + self.places.weight[(place > 4).long()] + self.places.weight[2 + place % 2]
        return self.blocks[0](x)  # type: ignore[no-any-return]


def test_two_kinds_of_segments_are_no_positions_together() -> None:
    torch.manual_seed(0)
    message = refusal(TwiceSegmented(), ids(), logits=None)
    assert message.startswith("no learned positions were found in TwiceSegmented on this batch: before its first attention")


class TurnedLater(Behind):
    """Positions are added samples first, and the encoder wants tokens first."""

    looked_up = False

    def forward(self, x: Tensor) -> Tensor:
        assert self.place is not None
        place = self.place[torch.arange(TOKENS).expand(len(x), -1)] if self.looked_up else self.place
        return self.body((self.embed(x) + place).transpose(0, 1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("looked_up", [True, False])
def test_as_many_samples_as_tokens_do_not_hide_positions_that_are_added_before_tokens_come_first(looked_up: bool) -> None:
    torch.manual_seed(0)
    model, x = TurnedLater(batch_first=False), features(TOKENS, TOKENS, 5)
    model.looked_up = looked_up
    start = eureka.clear_start(model, x)
    assert [row.parameters for row in start.positions] == [("place",)]
    assert model.place is not None
    with torch.no_grad():
        assert ratio(model.place, model.embed(x)) == pytest.approx([1.0], rel=0.01)


def test_a_compiled_model_is_run_uncompiled() -> None:
    model, inputs = CASES["bert"].made()
    compiled: Any = torch.compile(model, backend="eager")
    start = eureka.clear_start(compiled, inputs)
    assert start.model == "BertForMaskedLM"
    check_against_twins(CASES["bert"], model, inputs, 1.0, 1.0)


def test_segments_are_not_taken_for_positions() -> None:
    model, inputs = CASES["bert"].made()
    segments = (torch.arange(TOKENS) >= 5).long().expand(BATCH, -1)
    start = eureka.clear_start(model, {**inputs, "token_type_ids": segments})
    assert [row.parameters for row in start.positions] == [("bert.embeddings.position_embeddings.weight",)]


@pytest.mark.parametrize("batch", [1, BATCH])
def test_positions_that_are_chosen_by_an_argument_are_found(batch: int) -> None:
    model, _ = CASES["bert"].made()
    places = torch.arange(TOKENS).expand(batch, -1)
    start = eureka.clear_start(model, {"input_ids": ids(batch), "position_ids": places})
    assert [row.parameters for row in start.positions] == [("bert.embeddings.position_embeddings.weight",)]


class Chosen(HomeMade):
    def forward(self, ids: Tensor, position_ids: Tensor | None = None) -> Tensor:
        return self.blocks[0](self.words(ids) + self.places.weight[position_ids])  # type: ignore[no-any-return]


def test_positions_chosen_by_an_argument_stay_so_when_a_single_sample_is_turned_round() -> None:
    torch.manual_seed(0)
    inputs = {"ids": ids(1), "position_ids": torch.arange(TOKENS)[None] + 3}
    start = eureka.clear_start(Chosen(), inputs, logits=None)
    assert [row.parameters for row in start.positions] == [("places.weight",)]


def test_words_that_seldom_differ_are_not_taken_for_positions_that_padding_moves() -> None:
    """Both are the same in most tokens of all samples; the steadier one is the position."""
    model, _ = CASES["roberta"].made()
    words = ids(1).repeat(BATCH, 1)
    words[:, -3:] = ids()[:, -3:]
    words[::2, -1] = 1
    start = eureka.clear_start(model, {"input_ids": words}, logits=None)
    assert [row.parameters for row in start.positions] == [("roberta.embeddings.position_embeddings.weight",)]


class Apart(FusedAttention):
    """W_Q alone, W_K and W_V in one; a quarter of the keys."""

    def __init__(self) -> None:
        super().__init__()
        del self.qkv
        self.to_q, self.to_kv = nn.Linear(16, 16, bias=False), nn.Linear(16, 32, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = self.to_q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.to_kv(x[:, ::4]).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_keys_and_values_from_one_weight_beside_the_queries() -> None:
    torch.manual_seed(0)
    model, x = Apart(), features(BATCH, TOKENS, 16)
    values = model.to_kv.weight[16:].detach().clone()
    eureka.clear_start(model, x, positions=None)
    q, k = model.to_q(x), model.to_kv(x[:, ::4])[..., :16]
    q, k = (y.detach().double().unflatten(-1, (2, -1)).transpose(1, 2) for y in (q, k))
    assert explicit_logits(q, k, causal=False) == pytest.approx([1.0, 1.0], rel=0.01)
    assert torch.equal(model.to_kv.weight[16:], values)


def test_the_table_names_every_site_and_its_numbers() -> None:
    torch.manual_seed(0)
    lines = str(eureka.clear_start(HomeMade(), ids())).splitlines()
    assert lines[0] == "clear start of HomeMade"
    assert lines[1].split() == ["positions", "/", "content", "before", "after"]
    assert lines[2].split()[0] == "places.weight"
    assert lines[2].split()[-1] == "1.000"
    assert [line.split()[0] for line in lines[4:]] == ["blocks.0", "blocks.1"]
    assert all(line.split()[1] == "2" and line.split()[-1] == "1.000" for line in lines[4:])


def test_an_operator_other_than_softmax_is_noted() -> None:
    model, inputs = CASES["torch.nn"].made()
    with eureka.patch(model, NormSoftmax()):
        start = eureka.clear_start(model, inputs)
    assert start.notes == ("the model attends with NormSoftmax; the spread is that which plain softmax would see.",)
    check_against_twins(CASES["torch.nn"], model, inputs, 1.0, 1.0)


# Refusals.


def refusal(model: nn.Module, inputs: Any, **asked: Any) -> str:
    """One sentence, and the model as it was."""
    before = state(model)
    with pytest.raises(RequestError) as caught:
        eureka.clear_start(model, inputs, **asked)
    message = str(caught.value)
    assert message.endswith(".")
    assert ". " not in message
    assert "\n" not in message
    assert changed(model, before) == set()
    return message


class Waves(HomeMade):
    """Sinusoids that are computed anew."""

    def forward(self, ids: Tensor) -> Tensor:
        angles = torch.arange(ids.shape[1])[:, None] / 10 ** torch.linspace(0, 2, 8)
        x = self.words(ids) + torch.cat([angles.sin(), angles.cos()], dim=-1)
        return self.blocks[1](self.blocks[0](x))  # type: ignore[no-any-return]


class Sloped(HomeMade):
    """ALiBi: a slope for each head, and nothing added to the words."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("alibi_slopes", torch.ones(2))

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks[0](self.words(ids))  # type: ignore[no-any-return]


class Attached(HomeMade):
    """Fixed positions as a plain attribute, as VideoMAE has them."""

    def __init__(self) -> None:
        super().__init__()
        self.waves = torch.randn(TOKENS, 16)

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks[0](self.words(ids) + self.waves.clone())  # type: ignore[no-any-return]


def frozen() -> HomeMade:
    model = HomeMade()
    model.places.requires_grad_(False)
    return model


T5 = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
KINDS = {
    "rotary": CASES["llama, grouped and rotary"].make,
    "ALiBi": Sloped,
    "relative": lambda: hugging_face("T5EncoderModel", "T5Config", **T5),
    "fixed (pe)": lambda: HomeMade(fixed=True),
    "fixed (places.weight)": frozen,
    "fixed (waves)": Attached,
    "fixed (computed anew in each pass)": Waves,
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_positions_that_are_not_learned_are_named_in_a_note_or_refused_when_nothing_else_is_asked(kind: str) -> None:
    torch.manual_seed(0)
    model = KINDS[kind]()
    inputs = ids() if isinstance(model, HomeMade) else text()
    assert kind in refusal(model, inputs, logits=None)
    start = eureka.clear_start(model, inputs)
    assert f"are {kind}" in start.notes[0]
    assert not start.positions
    assert start.logits


def test_a_relative_table_that_starts_at_zero_stays_zero() -> None:
    torch.manual_seed(0)
    model = hugging_face("BeitModel", "BeitConfig", **VIT, use_relative_position_bias=True)
    start = eureka.clear_start(model, {"pixel_values": features(BATCH, 3, 12, 12)})
    assert start.notes == ("no learned positions: those of BeitModel are relative and act inside the attention.",)
    assert not model.get_parameter("layers.0.relative_position_bias.relative_position_bias_table").any()


def test_a_kind_of_positions_that_is_switched_off_is_not_named() -> None:
    torch.manual_seed(0)
    model = hugging_face("BeitModel", "BeitConfig", **VIT)
    message = refusal(model, {"pixel_values": features(BATCH, 3, 12, 12)}, logits=None)
    assert message.startswith("no learned positions were found in BeitModel")


def test_loud_positions_are_not_found_again_behind_the_attention() -> None:
    """Where tokens are looked up, the residual sums come from parameters too, and loud positions make them steady."""
    torch.manual_seed(0)
    model = HomeMade()
    nn.init.normal_(model.places.weight, std=30.0)
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    nn.init.normal_(model.places.weight.requires_grad_(False), std=30.0)
    start = eureka.clear_start(model, ids())
    assert start.notes == ("no learned positions: those of HomeMade are fixed (places.weight).",)


def test_no_positions_at_all_is_said() -> None:
    torch.manual_seed(0)
    message = refusal(Behind(positions=False), features(BATCH, TOKENS, 5), logits=None)
    assert message.startswith("no learned positions were found in Behind")


def test_positions_that_start_at_zero_are_drawn_and_it_is_said() -> None:
    torch.manual_seed(0)
    model = HomeMade(zero=True)
    start = eureka.clear_start(model, ids())
    assert ratios_at_home(model, ids()) == pytest.approx([1.0], rel=0.01)
    assert [(row.parameters, row.before, row.drawn) for row in start.positions] == [(("places.weight",), 0.0, True)]
    assert start.notes == ("the positions places.weight were zero; they are drawn from a normal distribution, seed 0.",)
    assert str(start).splitlines()[2].split() == ["places.weight", "drawn", "0.000", "1.000"]
    values = model.places.weight.detach()
    assert len(torch.unique(values)) == values.numel()
    assert not eureka.clear_start(model, ids()).positions[0].drawn
    start.undo()
    assert not model.places.weight.any()


def test_the_seed_decides_what_is_drawn() -> None:
    found: list[Tensor] = []
    for seed in (0, 0, 1):
        torch.manual_seed(0)
        model = HomeMade(zero=True)
        torch.manual_seed(100 + len(found))
        eureka.clear_start(model, ids(), seed=seed)
        found.append(model.places.weight.detach())
    assert torch.equal(found[0], found[1])
    assert not torch.allclose(found[0], found[2])


class Segmented(HomeMade):
    """A table of segments that starts at zero."""

    def __init__(self, *, zero: bool = False) -> None:
        super().__init__(zero=zero)
        self.segments = nn.Parameter(torch.zeros(2, 16))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.segments[(torch.arange(ids.shape[1]) > 4).long()]
        return self.blocks[0](x + self.places(torch.arange(ids.shape[1])))  # type: ignore[no-any-return]


@pytest.mark.parametrize("zero", [True, False])
def test_a_zero_table_that_is_no_position_stays_zero(zero: bool) -> None:
    torch.manual_seed(0)
    model = Segmented(zero=zero)
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert start.positions[0].drawn is zero
    assert not model.segments.any()
    assert ratios_at_home(model, ids()) == pytest.approx([1.0], rel=0.01)


def test_zero_positions_beside_others_are_drawn_too() -> None:
    model, inputs = CASES["bart"].made()
    nn.init.zeros_(model.get_parameter("model.decoder.embed_positions.weight"))
    start = eureka.clear_start(model, inputs)
    assert [row.drawn for row in start.positions] == [False, True]
    check_against_twins(CASES["bart"], model, inputs, 1.0, 1.0)


class Gated(HomeMade):
    """Positions behind a gate that starts closed."""

    def __init__(self, *shape: int, fixed: bool) -> None:
        super().__init__(fixed=fixed)
        self.gate = nn.Parameter(torch.zeros(shape))

    def forward(self, ids: Tensor) -> Tensor:
        places = (self.get_buffer("pe") if self.fixed else self.places.weight)[: ids.shape[1]]
        return self.blocks[0](self.words(ids) + self.gate * places)  # type: ignore[no-any-return]


def test_a_gate_that_starts_closed_is_not_drawn_but_refused() -> None:
    torch.manual_seed(0)
    assert "the positions gate are all zero" in refusal(Gated(16, fixed=True), ids())
    assert "the positions gate and places.weight are all zero" in refusal(Gated(TOKENS, 16, fixed=False), ids())


class Shifted(HomeMade):
    """A bias for each feature that starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1, 1, 16))

    def forward(self, ids: Tensor) -> Tensor:
        return self.blocks[0](self.words(ids) + self.bias)  # type: ignore[no-any-return]


def test_a_zero_bias_is_not_taken_for_positions() -> None:
    torch.manual_seed(0)
    assert refusal(Shifted(), ids(), logits=None).startswith("no learned positions were found in Shifted")


def test_a_model_that_draws_in_each_pass_is_measured_on_one_and_the_same_draw() -> None:
    torch.manual_seed(0)
    model = hugging_face("ViTMAEModel", "ViTMAEConfig", **VIT)
    inputs = {"pixel_values": features(BATCH, 3, 12, 12)}
    eureka.clear_start(model, inputs)
    before = state(model)
    torch.manual_seed(7)
    eureka.clear_start(model, inputs)
    assert changed(model, before) == set()
    torch.manual_seed(0)
    assert spreads_of_weights(model, inputs) == pytest.approx([1.0] * 4, rel=0.01)


def test_fixed_positions_beside_learned_ones_are_noted() -> None:
    model, inputs = CASES["bart"].made()
    model.get_parameter("model.encoder.embed_positions.weight").requires_grad_(False)
    start = eureka.clear_start(model, inputs)
    assert [row.parameters for row in start.positions] == [("model.decoder.embed_positions.weight",)]
    assert start.notes == ("the positions model.encoder.embed_positions.weight are fixed; they are as they were.",)
    model.get_parameter("model.decoder.embed_positions.weight").requires_grad_(False)
    both = "model.decoder.embed_positions.weight and model.encoder.embed_positions.weight"
    assert f"are fixed ({both})." in refusal(model, inputs, logits=None)


class Doubled(HomeMade):
    """One table for words and places."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.words(torch.arange(ids.shape[1]))
        return self.blocks[0](x)  # type: ignore[no-any-return]


def test_a_table_for_words_and_positions_is_refused() -> None:
    torch.manual_seed(0)
    assert "words.weight is both position and content" in refusal(Doubled(), ids())


def test_a_trained_model_is_refused_unless_asked() -> None:
    model, inputs = CASES["torch.nn"].made()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(inputs).square().mean().backward()
    optimiser.step()
    message = refusal(model, inputs)
    assert "looks trained: the weight of body.layers.0.norm1 goes from" in message
    assert "pass trained=True" in message
    eureka.clear_start(model, inputs, trained=True)
    check_against_twins(CASES["torch.nn"], model, inputs, 1.0, 1.0)


class NormedAttention(FusedAttention):
    """A norm stands between W_Q and the logits."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k = F.layer_norm(q, q.shape[-1:]), F.layer_norm(k, k.shape[-1:])
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_a_norm_between_weights_and_logits_is_refused_and_names_the_site() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = NormedAttention()
    assert "the logits of blocks.1 have a spread of" in refusal(model, ids(), logits=0.5)


def test_weights_that_layers_share_are_refused_and_name_the_site() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = model.blocks[0]
    assert "the logits of blocks.0 have a spread of" in refusal(model, ids())
    model.blocks[1] = FusedAttention()
    model.blocks[1].qkv.weight = model.blocks[0].qkv.weight  # type: ignore[union-attr]
    assert "layers share them" in refusal(model, ids())


class Bent(HomeMade):
    """Positions that do not reach the content in proportion to their parameters."""

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places(torch.arange(ids.shape[1])).tanh()
        return self.blocks[0](x)  # type: ignore[no-any-return]


def test_positions_out_of_proportion_are_refused() -> None:
    torch.manual_seed(0)
    assert "do not reach it in proportion" in refusal(Bent(), ids(), positions=3.0)


class KeysAreValues(FusedAttention):
    def forward(self, x: Tensor) -> Tensor:
        q, k, _ = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(F.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def test_keys_that_are_values_too_are_refused() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[1] = KeysAreValues()
    assert "blocks.1 uses its keys as values" in refusal(model, ids())


class ByItself(nn.Module):
    """Attention that computes its own softmax, and adds a learned bias to its logits."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.bias = nn.Linear(16, 48), nn.Parameter(torch.randn(2, TOKENS, TOKENS))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1) + self.bias).softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


class BiasedQueries(ByItself):
    """A bias of each head is added to its queries, as in DeBERTa, and starts at zero."""

    def __init__(self) -> None:
        super().__init__()
        self.q_bias = nn.Parameter(torch.zeros(2, 1, 8))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return (((q + self.q_bias) @ k.transpose(-2, -1)).softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def test_a_zero_bias_inside_attention_that_is_written_out_is_not_taken_for_positions() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks = nn.ModuleList(BiasedQueries() for _ in range(2))
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert len(start.notes) == 1
    assert "q_bias" not in start.notes[0]


class AllInOne(ByItself):
    """The module that writes out the softmax has the words and the positions too."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Parameter(0.02 * torch.randn(TOKENS, 16))

    def forward(self, ids: Tensor) -> Tensor:
        return super().forward(self.words(ids) + self.places)


def test_positions_beside_a_softmax_that_the_same_module_writes_out_are_found_and_its_bias_is_none() -> None:
    torch.manual_seed(0)
    model = AllInOne()
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places",)]
    assert ratio(model.places, model.words(ids())) == pytest.approx([1.0], rel=0.01)
    (note,) = start.notes
    assert note.startswith("the logits of AllInOne are as they were: it computes the softmax of attention by itself (")


def test_positions_are_rescaled_although_the_softmax_is_out_of_reach() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks = nn.ModuleList(ByItself() for _ in range(2))
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert changed(model, before) == {"places.weight"}
    assert ratios_at_home(model, ids()) == pytest.approx([1.0], rel=0.01)
    (note,) = start.notes
    assert note.startswith("the logits of blocks.0 and blocks.1 are as they were: each computes the softmax of attention by")
    assert re.search(r"\(test_clear_start\.py:\d+\)\.$", note)  # where it does so
    message = refusal(model, ids(), positions=None)
    assert message.startswith(
        "W_Q and W_K of HomeMade cannot be rescaled: blocks.0 computes the softmax of attention by itself ("
    )


def test_a_model_without_values_is_refused() -> None:
    with torch.device("meta"):
        model = HomeMade()
    with pytest.raises(RequestError, match=r"words.weight of HomeMade has no values yet"):
        eureka.clear_start(model, ids())
    lazy = HomeMade()
    lazy.blocks[0].qkv = nn.LazyLinear(48)
    with pytest.raises(RequestError, match=r"blocks.0.qkv.weight of HomeMade has no values yet \(meta or lazy\)"):
        eureka.clear_start(lazy, ids())


@pytest.mark.parametrize("shape", [(0, TOKENS), (BATCH, 0)])
def test_an_empty_batch_is_refused(shape: tuple[int, int]) -> None:
    message = refusal(HomeMade(), {"ids": torch.zeros(shape, dtype=torch.long)})
    assert message == f"the inputs hold a tensor of shape {shape}; pass a batch with a sample or more."


class Unreached(HomeMade):
    def forward(self, ids: Tensor) -> Tensor:
        return self.words(ids)  # type: ignore[no-any-return]


def test_a_model_that_does_not_attend_on_these_inputs_is_refused() -> None:
    assert "no attention call of Unreached was seen" in refusal(Unreached(), ids())
    assert "no attention call of Unreached was seen" in refusal(Unreached(), ids(), logits=None)


def test_heads_without_spread_are_refused() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    nn.init.zeros_(model.get_parameter("blocks.1.qkv.weight"))
    assert "head 0 of blocks.1 has logits without any spread" in refusal(model, ids())
    assert "head 0 of blocks.0 has logits without any spread" in refusal(HomeMade(), ids()[:, :1], positions=None)
    behind, inputs = CASES["torch.nn"].made()
    inputs[0, 0, 0] = math.nan
    assert "or values are not finite" in refusal(behind, inputs)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"positions": None, "logits": None}, "leave nothing to do"),
        ({"positions": 0.0}, "positions is a number from 1e-06 to 1e+06, or None, not 0.0."),
        ({"positions": "1"}, "positions is a number from 1e-06 to 1e+06, or None, not '1'."),
        ({"positions": True}, "positions is a number from 1e-06 to 1e+06, or None, not True."),
        ({"positions": 1e30}, "positions is a number from 1e-06 to 1e+06, or None, not 1e+30."),
        ({"logits": math.nan}, "logits is a number from 1e-06 to 1e+06, or None, not nan."),
        ({"logits": [1.0, 1.0]}, "logits is a number from 1e-06 to 1e+06, or None, not [1.0, 1.0]."),
        ({"logits": 1e30}, "logits is a number from 1e-06 to 1e+06, or None, not 1e+30."),
        ({"seed": "a"}, "seed is a whole number from 0 to 2**63 - 1, not 'a'."),
    ],
)
def test_requests_that_mean_nothing_are_refused(asked: dict[str, Any], message: str) -> None:
    assert message in refusal(HomeMade(), ids(), **asked)


@pytest.mark.parametrize("asked", [{"positions": 1e6, "logits": 1e6}, {"positions": 1e-6, "logits": 1e-6}])
def test_the_largest_and_the_least_request_are_met(asked: dict[str, float]) -> None:
    torch.manual_seed(0)
    start = eureka.clear_start(HomeMade(), ids(), **asked)  # type: ignore[arg-type]
    assert [row.after for row in start.positions] == pytest.approx([asked["positions"]], rel=0.01)
    assert [spread for row in start.logits for spread in row.after] == pytest.approx([asked["logits"]] * 4, rel=0.01)


@pytest.mark.parametrize(
    ("inputs", "given"),
    [
        ((ids(), ids()), "a tuple of 2 was passed as the only argument"),
        ([ids(), ids()], "a list of 2 was passed as the only argument"),
        (ids().numpy(), "an object of type ndarray was passed as the only argument"),
        (None, "None was passed as the only argument"),
        ({"words": ids()}, "a mapping of 'words' was passed by keyword"),
        (ids() + WORDS, "a tensor of shape (6, 9) was passed as the only argument"),
    ],
)
def test_inputs_that_the_model_does_not_take_are_refused_with_its_own_error(inputs: Any, given: str) -> None:
    message = refusal(HomeMade(), inputs)
    assert message.startswith("a pass of HomeMade over these inputs failed (")
    assert message.endswith(f"); {given}: give what its forward takes, a tensor or a mapping of keywords.")
    with pytest.raises(RequestError, match="a pass of HomeMade over these inputs failed"):
        eureka.position_share(HomeMade(), inputs)


def test_what_is_no_module_is_refused() -> None:
    for function in (eureka.clear_start, eureka.position_share):
        with pytest.raises(RequestError, match="not an object of type str; give the module itself"):
            function(cast(Any, "model"), ids())


def test_a_batch_of_one_value_is_refused() -> None:
    message = "the inputs hold 3 at every place, which shows neither positions nor a spread; pass a batch of real samples."
    assert refusal(HomeMade(), torch.full((BATCH, TOKENS), 3)) == message
    bert, _ = CASES["bert"].made()
    real = (torch.arange(TOKENS) < 5).long().expand(BATCH, -1)
    labels = torch.randint(WORDS, (BATCH, TOKENS))
    assert refusal(bert, {"input_ids": torch.full((BATCH, TOKENS), 3), "attention_mask": real, "labels": labels}) == message
    vit, inputs = CASES["vit"].made()
    assert "the inputs hold 0.5 at every place" in refusal(vit, {"pixel_values": torch.full_like(inputs["pixel_values"], 0.5)})


def test_samples_that_do_not_tell_positions_from_content_are_named_as_the_reason() -> None:
    torch.manual_seed(0)
    palindromes = torch.tensor([1, 2, 3, 4, 5, 4, 3, 2, 1]).repeat(BATCH, 1)
    start = eureka.clear_start(HomeMade(), palindromes)
    assert start.notes == (
        "no learned positions were found in HomeMade on this batch: its samples are all alike, also when they are turned round,"
        " which does not tell positions from content; pass samples that differ.",
    )


class Grouped(nn.Module):
    """Four query heads and two key heads from one layer; the module does not say so."""

    def __init__(self, *, repeated: bool = False, turned: bool = False, name: str = "qkv") -> None:
        super().__init__()
        self.repeated, self.turned, self.name = repeated, turned, name
        self.add_module(name, nn.Linear(16, 32))
        self.out = nn.Linear(16, 16)

    def projected(self, x: Tensor) -> list[Tensor]:
        """q, k and v, (B, H, N, D) each."""
        parts = self.get_submodule(self.name)(x).split([16, 8, 8], dim=-1)
        return [part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in parts]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        if self.turned:
            q, k = (part * torch.linspace(1, 1.5, part.shape[2])[:, None] for part in (q, k))  # as rotary positions, in its way
        if self.repeated:
            k, v = (part.repeat_interleave(2, dim=1) for part in (k, v))
        return self.out(F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("asked", [{}, {"repeated": True}, {"turned": True}, {"turned": True, "repeated": True}])
def test_grouped_heads_from_one_layer_are_told_apart_by_the_call(asked: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = Grouped(**asked), features(BATCH, TOKENS, 16)
    before = state(model)
    start = eureka.clear_start(model, x, positions=None)
    assert start.logits[0].after == pytest.approx([1.0] * 4, rel=0.01)
    assert torch.equal(model.get_parameter("qkv.weight")[24:], before["qkv.weight"][24:])  # v
    if not asked.get("turned"):
        with torch.no_grad():
            q, k, _ = (part.double() for part in model.projected(x))
        assert explicit_logits(q, k.repeat_interleave(2, dim=1), causal=False) == pytest.approx([1.0] * 4, rel=0.01)


class AnotherOrder(FusedAttention):
    """One layer that holds q, k and v head by head, or v first."""

    def __init__(self, order: str) -> None:
        super().__init__()
        self.order = order

    def projected(self, x: Tensor) -> Tensor:
        """(3, B, H, N, D)."""
        if self.order == "by head":
            return self.qkv(x).unflatten(-1, (self.heads, 3, -1)).permute(3, 0, 2, 1, 4)  # type: ignore[no-any-return]
        return self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).flip(0)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.projected(x)
        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


@pytest.mark.parametrize("order", ["by head", "v, k, q"])
def test_queries_keys_and_values_may_lie_in_any_order(order: str) -> None:
    torch.manual_seed(0)
    model, x = AnotherOrder(order), features(BATCH, TOKENS, 16)
    with torch.no_grad():
        values = model.projected(x)[2]
        eureka.clear_start(model, x, positions=None)
        q, k, v = model.projected(x)
    assert explicit_logits(q.double(), k.double(), causal=False) == pytest.approx([1.0, 1.0], rel=0.01)
    assert torch.equal(v, values)


class Rotated(AnotherOrder):
    """As before, and q is changed on the way, so that its rows are not seen."""

    def projected(self, x: Tensor) -> Tensor:
        return super().projected(x) * torch.linspace(1, 2, x.shape[1])[:, None]


def test_an_order_that_is_not_seen_is_among_the_reasons() -> None:
    torch.manual_seed(0)
    message = refusal(Rotated("by head"), features(BATCH, TOKENS, 16), positions=None)
    assert "a norm stands between, layers share them, or q, k and v lie in another order" in message


class Widened(Grouped):
    """More comes out of the one layer than q, k and v."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 37)

    def projected(self, x: Tensor) -> list[Tensor]:
        parts = (2 * self.qkv(x)).split([16, 8, 8, 5], dim=-1)[:3]
        return [part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in parts]


def test_one_layer_that_does_not_fit_its_heads_is_named() -> None:
    torch.manual_seed(0)
    message = refusal(Widened(), features(BATCH, TOKENS, 16), positions=None)
    assert message.endswith(": Widened has one layer of 37 outputs for q, k and v, which do not fit its heads.")


def test_positions_are_rescaled_although_w_q_has_no_usual_name_and_the_note_says_what_was_looked_for() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[0] = Grouped(name="mixed")
    start = eureka.clear_start(model, ids())
    assert [row.parameters for row in start.positions] == [("places.weight",)]
    assert [row.site for row in start.logits] == ["blocks.1"]
    (note,) = start.notes
    assert note.startswith("the logits of blocks.0 are as they were: it has no layer for W_Q by a usual name (query, q_proj, ")
    assert "or as a part of qkv, c_attn, " in note
    model.blocks[1] = Grouped(name="mixed")
    assert refusal(model, ids(), positions=None).startswith(
        "W_Q and W_K of HomeMade cannot be rescaled: blocks.0 has no layer for W_Q by a usual name ("
    )
    assert [row.parameters for row in eureka.clear_start(model, ids()).positions] == [("places.weight",)]


def test_frozen_weights_stay_and_it_is_said_as_of_frozen_positions() -> None:
    torch.manual_seed(0)
    model = HomeMade()
    model.blocks[0].requires_grad_(False)
    before = state(model)
    start = eureka.clear_start(model, ids())
    assert changed(model, before) == {"places.weight", "blocks.1.qkv.weight", "blocks.1.qkv.bias"}
    assert start.notes == ("the logits of blocks.0 are as they were: it has a W_Q that is frozen.",)
    model.requires_grad_(False)
    assert refusal(model, ids()) == (
        "no learned positions: those of HomeMade are fixed (places.weight); blocks.0 has a W_Q that is frozen."
    )
    assert refusal(model, ids(), positions=None) == (
        "W_Q and W_K of HomeMade cannot be rescaled: blocks.0 has a W_Q that is frozen."
    )


def test_a_model_without_attention_is_refused() -> None:
    assert "no attention found in Linear" in refusal(nn.Linear(3, 3), features(2, 3))
