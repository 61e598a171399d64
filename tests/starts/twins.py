"""Models of every family, and slow twins of what a clear start measures on them."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import eureka
from eureka.attention.operator import Operator, make_operator
from eureka.errors import RequestError
from eureka.models.decoder import Decoder, DecoderSettings
from eureka.models.encoder import Encoder, EncoderSettings, ViT, ViTSettings

WORDS = 40
TOKENS = 9
BATCH = 6
Twin = Callable[[Any, Any], list[float]]


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
