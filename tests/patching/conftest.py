"""Small models of other people, from random configs, and an attention of their own written the slow way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = pytest.importorskip("transformers")

WORDS, TOKENS, BATCH = 40, 9, 3


def bert() -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**text_sizes()))


def roberta() -> Any:
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(**text_sizes(), max_position_embeddings=32))


def distilbert() -> Any:
    config = transformers.DistilBertConfig(
        vocab_size=WORDS,
        dim=16,
        hidden_dim=32,
        n_layers=2,
        n_heads=2,
        dropout=0.0,
        attention_dropout=0.0,
        max_position_embeddings=32,
    )
    return transformers.DistilBertForMaskedLM(config)


def gpt2() -> Any:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=WORDS, bos_token_id=1, eos_token_id=None, pad_token_id=0, **sizes)
    )


def llama() -> Any:
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
    }
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=WORDS, bos_token_id=1, eos_token_id=None, pad_token_id=0, max_position_embeddings=64, **sizes
        )
    )


def vit() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 12}
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return transformers.ViTForImageClassification(transformers.ViTConfig(patch_size=4, num_labels=5, **sizes, **dropouts))


def t5() -> Any:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=WORDS, decoder_start_token_id=0, eos_token_id=None, **sizes)
    )


def bart() -> Any:
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    more = {"encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "dropout": 0.0, "max_position_embeddings": 32}
    ids = {"bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0, "decoder_start_token_id": 2, "forced_eos_token_id": None}
    return transformers.BartForConditionalGeneration(transformers.BartConfig(vocab_size=WORDS, **sizes, **more, **ids))


def text_sizes() -> dict[str, Any]:
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        **dropouts,
    }


MODELS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "bert": (bert, 2),
    "roberta": (roberta, 2),
    "distilbert": (distilbert, 2),
    "gpt2": (gpt2, 2),
    "llama": (llama, 2),
    "vit": (vit, 2),
    "t5": (t5, 6),
    "bart": (bart, 5),
}
"""Each with the number of its attention modules."""
WITH_DECODER = ("t5", "bart")


@dataclass
class Case:
    """A model, what to feed it, and which outputs mean something."""

    name: str
    model: nn.Module
    inputs: dict[str, Tensor]
    sites: int

    def outputs(self) -> Tensor:
        """Logits at the positions that are no padding."""
        logits: Tensor = self.model(**self.inputs).logits
        mask = self.inputs.get("attention_mask")
        return logits if mask is None or self.name in WITH_DECODER else logits[mask.bool()]

    def outputs_and_gradients(self) -> list[Tensor]:
        """The outputs, and the gradient of a fixed combination of them by every parameter."""
        self.model.zero_grad()
        outputs = self.outputs()
        generator = torch.Generator().manual_seed(7)
        (outputs * torch.randn(outputs.shape, generator=generator)).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [p.grad.clone() for p in self.model.parameters() if p.grad is not None]
        assert gradients
        return [outputs.detach(), *gradients]


def make_case(name: str, padding: str = "none") -> Case:
    make, sites = MODELS[name]
    torch.manual_seed(0)
    model = make().train().double()
    widen(model)
    generator = torch.Generator().manual_seed(1)
    if name == "vit":
        return Case(name, model, {"pixel_values": torch.randn(BATCH, 3, 12, 12, generator=generator).double()}, sites)
    ids = torch.randint(3, WORDS, (BATCH, TOKENS), generator=generator)
    inputs = {"input_ids": ids}
    if padding != "none":
        lengths = torch.tensor([TOKENS, 5, 7])[:, None]
        place = torch.arange(TOKENS)
        inputs["attention_mask"] = ((place < lengths) if padding == "right" else (place >= TOKENS - lengths)).long()
    if name in WITH_DECODER:
        inputs["decoder_input_ids"] = torch.randint(3, WORDS, (BATCH, 6), generator=generator)
    return Case(name, model, inputs, sites)


def widen(model: nn.Module) -> None:
    """Larger weights: logits whose spread lies on both sides of √d, where NormSoftmax is one thing and the other."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.mul_(1.3 / parameter.shape[1] ** 0.5 / parameter.std().clamp_min(1e-6))


@pytest.fixture(params=list(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def case() -> Callable[..., Case]:
    return make_case


def explicit_norm_softmax(
    q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, scale: float, bias: Tensor | None = None
) -> Tensor:
    """The formula itself: softmax(a / min(√d, std of the visible a) + bias)·v with a = q·k in units of √d·scale."""
    heads, d = q.shape[1], q.shape[-1]
    k, v = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (k, v))
    a = torch.einsum("bhqd,bhkd->bhqk", q, k) * (scale * d**0.5)
    seen = torch.ones_like(a, dtype=torch.bool) if hidden is None else ~hidden.expand_as(a)
    n = seen.sum(-1, keepdim=True).clamp_min(1)
    mean = (a * seen).sum(-1, keepdim=True) / n
    s = (((a - mean) ** 2 * seen).sum(-1, keepdim=True) / n).clamp_min(1e-30).sqrt()
    flat = s < 1e-6  # a row without spread
    s = torch.where(flat, d**0.5, s).clamp_max(d**0.5)
    REGIMES.append((flat | (s >= d**0.5)).float().mean().item())
    z = a / s + (0.0 if bias is None else bias)
    p = z.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.nan_to_num(p) @ v


REGIMES: list[float] = []
"""Of each explicit call, the share of rows at the cap: a comparison where all or none are there proves half."""


@pytest.fixture
def regimes() -> list[float]:
    REGIMES.clear()
    return REGIMES


@pytest.fixture
def explicit() -> Callable[..., Tensor]:
    return explicit_norm_softmax


@pytest.fixture
def explicitly() -> Callable[[nn.Module], None]:
    """Let a Hugging Face model attend by the explicit formula, with nothing of our code: another function, and the additive
    masks of its eager attention."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    def attention(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scaling: float | None = None, **rest: Any
    ) -> Any:
        scale = q.shape[-1] ** -0.5 if scaling is None else scaling
        hidden = None if mask is None else mask < -1e30
        return explicit_norm_softmax(q, k, v, hidden, scale, rest.get("position_bias")).transpose(1, 2), None

    AttentionInterface.register("explicit_norm", attention)
    AttentionMaskInterface.register("explicit_norm", eager_mask)

    def switch(model: Any) -> None:
        model.set_attn_implementation("explicit_norm")

    return switch
