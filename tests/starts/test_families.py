"""Clear start of the families of transformers: what was asked is there, or one true sentence says why not."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.errors import RequestError

transformers = pytest.importorskip("transformers")

WORDS, TOKENS, BATCH = 40, 9, 6


def ids() -> Tensor:
    return torch.randint(3, WORDS, (BATCH, TOKENS), generator=torch.Generator().manual_seed(1))


def numbers(*shape: int) -> Tensor:
    return torch.randn(BATCH, *shape, generator=torch.Generator().manual_seed(1))


def text() -> dict[str, Tensor]:
    return {"input_ids": ids()}


def two_texts() -> dict[str, Tensor]:
    return {"input_ids": ids(), "decoder_input_ids": ids().flip(0)}


@dataclass
class Family:
    """A model class of transformers, and what there is to find."""

    model: str
    sizes: Mapping[str, Any]
    inputs: Mapping[str, Tensor] = field(default_factory=text)
    positions: tuple[str, ...] = ()
    """Learned positions."""
    drawn: bool = False
    """Whether they start at zero."""
    sites: int = 2
    """How many have logits that can be rescaled."""
    says: str = ""
    """Part of a note, or of the refusal."""
    biased: bool = False
    """Whether a bias is added to q·k, so that the weights do not tell its spread."""

    def made(self) -> Any:
        torch.manual_seed(0)
        made = getattr(transformers, self.model)
        return made(made.config_class(**self.sizes))


SIZES: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
TEXT = SIZES | {"vocab_size": WORDS, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GROUPED = TEXT | {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2}
PICTURE = SIZES | {"image_size": 12, "patch_size": 4}
WINDOWS = {"image_size": 16, "patch_size": 4, "embed_dim": 16, "depths": [1], "num_heads": [2], "window_size": 2}
LATENT = TEXT | {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8}
LATENT |= {"first_k_dense_replace": 2, "num_key_value_heads": 2}  # layers without experts, which do not run in double precision
DISTIL = {"vocab_size": WORDS, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32}
GPT = {"vocab_size": WORDS, "n_layer": 2, "n_head": 2, "bos_token_id": 1, "eos_token_id": 2}
NEO = {"vocab_size": WORDS, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "attention_types": [[["global", "local"], 1]]}
CTRL = {"vocab_size": WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "dff": 32}
T5 = {"vocab_size": WORDS, "d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
HALF = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
PAIR = {f"{half}_{key}": value for half in ("encoder", "decoder") for key, value in HALF.items()} | {"d_model": 16}
PAIR |= {"vocab_size": WORDS, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 32}
SOUND = {"num_mel_bins": 4, "max_source_positions": 10, "max_target_positions": 32, "decoder_start_token_id": 1}

PIXELS, PATCHES = {"pixel_values": numbers(3, 12, 12)}, {"pixel_values": numbers(3, 16, 16)}
PARAMETER, TABLE = ("embeddings.position_embeddings",), ("embeddings.position_embeddings.weight",)
CLIP, ENCODER, DECODER = (
    "embeddings.position_embedding.weight",
    "encoder.embed_positions.weight",
    "decoder.embed_positions.weight",
)
ABSOLUTE = {"use_absolute_position_embeddings": True}

FAMILIES = {
    "ViT": Family("ViTModel", PICTURE, PIXELS, PARAMETER),
    "DeiT": Family("DeiTModel", PICTURE, PIXELS, PARAMETER, drawn=True),
    "BEiT, absolute": Family("BeitModel", PICTURE | ABSOLUTE, PIXELS, PARAMETER, drawn=True),
    "Swin": Family("SwinModel", WINDOWS, PATCHES, sites=1, biased=True, says="are relative"),
    "Swin, absolute": Family(
        "SwinModel", WINDOWS | {"use_absolute_embeddings": True}, PATCHES, PARAMETER, drawn=True, sites=1, biased=True
    ),
    "CLIP, vision": Family("CLIPVisionModel", PICTURE, PIXELS, (CLIP,)),
    "CLIP, text": Family("CLIPTextModel", TEXT, positions=(CLIP,)),
    "ViTMAE": Family("ViTMAEModel", PICTURE, {**PIXELS, "noise": numbers(9)}, says="no learned positions"),
    "VideoMAE": Family("VideoMAEModel", PICTURE | {"num_frames": 2}, {"pixel_values": numbers(2, 3, 12, 12)}, says="are fixed"),
    "BERT": Family("BertModel", TEXT, positions=TABLE),
    "DistilBERT": Family("DistilBertModel", DISTIL, positions=TABLE),
    "ELECTRA": Family("ElectraModel", TEXT | {"embedding_size": 8}, positions=TABLE),
    "RoBERTa": Family("RobertaModel", TEXT, positions=TABLE),
    "XLM-R": Family("XLMRobertaModel", TEXT, positions=TABLE),
    "MPNet": Family("MPNetModel", TEXT, positions=TABLE, biased=True),
    "ModernBERT": Family("ModernBertModel", TEXT | {"cls_token_id": 1, "sep_token_id": 2}, says="are rotary"),
    "GPT-2": Family("GPT2Model", GPT | {"n_embd": 16, "n_positions": 32}, positions=("wpe.weight",)),
    "GPT-Neo": Family("GPTNeoModel", NEO, positions=("wpe.weight",)),
    "GPT-J": Family("GPTJModel", GPT | {"n_embd": 16, "rotary_dim": 4}, says="are rotary"),
    "GPT-NeoX": Family("GPTNeoXModel", TEXT, says="are rotary"),
    "OPT": Family("OPTModel", TEXT | {"ffn_dim": 32, "word_embed_proj_dim": 16}, positions=(DECODER,)),
    "Llama": Family("LlamaModel", GROUPED, says="are rotary"),
    "Mistral": Family("MistralModel", GROUPED, says="are rotary"),
    "Falcon": Family("FalconModel", GROUPED | {"new_decoder_architecture": True, "num_kv_heads": 2}, says="are rotary"),
    "Falcon, one key": Family("FalconModel", GROUPED, says="are rotary"),
    "Falcon, ALiBi": Family("FalconModel", GROUPED | {"alibi": True}, says="are ALiBi", biased=True),
    "BLOOM": Family("BloomModel", GPT | {"hidden_size": 16}, says="are ALiBi", biased=True),
    "DeepSeek-V3": Family("DeepseekV3Model", LATENT, says="W_Q of layers.0.self_attn and layers.1.self_attn takes the whole"),
    "DeepSeek-V2, whole queries": Family(
        "DeepseekV2Model", LATENT | {"q_lora_rank": None}, says="W_Q of layers.0.self_attn and layers.1.self_attn takes the whole"
    ),
    "CTRL": Family("CTRLModel", CTRL, says="are fixed (pos_encoding)"),
    "T5": Family("T5EncoderModel", T5, says="are relative", biased=True),
    "Switch": Family("SwitchTransformersEncoderModel", T5 | {"num_sparse_encoder_layers": 0}, says="are relative", biased=True),
    "BART": Family("BartModel", PAIR, two_texts(), (ENCODER, DECODER), sites=3),
    "Pegasus": Family("PegasusModel", PAIR, two_texts(), sites=3, says=f"are fixed ({DECODER} and {ENCODER})"),
    "Whisper": Family(
        *("WhisperModel", PAIR | SOUND, {"input_features": numbers(4, 20), "decoder_input_ids": ids()}, (DECODER,)),
        sites=3,
        says=f"{ENCODER} are fixed",
    ),
}
REFUSED = {
    "Qwen3": Family("Qwen3Model", GROUPED | {"head_dim": 8}, says="layers.0.self_attn norms q behind W_Q"),
    "OLMo 2": Family("Olmo2Model", GROUPED, says="layers.0.self_attn norms q behind W_Q"),
    "Swin V2": Family("Swinv2Model", WINDOWS, PATCHES, says="self norms q behind W_Q"),
}
ALBERT = Family("AlbertModel", TEXT | {"embedding_size": 8})


def state(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def changed(model: nn.Module, before: Mapping[str, Tensor]) -> set[str]:
    return {name for name, tensor in state(model).items() if not torch.equal(tensor, before[name])}


def spreads_of_weights(model: Any, inputs: Mapping[str, Tensor]) -> list[float]:
    """A slow twin: in a row, log-weights differ from logits by a constant. Sites in the order of the calls."""
    slow = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="eager")
    slow.load_state_dict(model.state_dict())
    slow = slow.double().eval()
    given = {key: value.double() if value.is_floating_point() else value for key, value in inputs.items()}
    with torch.no_grad():
        out = slow(**given, output_attentions=True)
    layers = list(out.get("attentions") or out["encoder_attentions"])
    for pair in zip(out.get("decoder_attentions") or (), out.get("cross_attentions") or (), strict=True):
        layers += pair
    found = []
    for weights in layers:
        logits = torch.where(weights > 0, weights.log(), torch.nan)
        spread = (logits - logits.nanmean(dim=-1, keepdim=True)).square().nanmean(dim=-1).sqrt()
        several = (weights > 0).sum(dim=-1) >= 2
        found += [spread[:, head][several[:, head]].mean().item() for head in range(weights.shape[1])]
    return found


@pytest.mark.parametrize("name", list(FAMILIES))
def test_a_family_starts_as_asked_and_is_put_back(name: str) -> None:
    family, positions, logits = FAMILIES[name], 0.5, 2.0
    model = family.made()
    fresh = state(model)
    start = eureka.clear_start(model, family.inputs, positions=positions, logits=logits)
    assert tuple(row.parameters[0] for row in start.positions) == family.positions
    assert [row.after for row in start.positions] == pytest.approx([positions] * len(family.positions), rel=0.01)
    assert all(row.drawn is family.drawn for row in start.positions)
    assert len(start.logits) == family.sites
    if family.sites and not family.biased:
        found = spreads_of_weights(model, family.inputs)
        assert found == pytest.approx([logits] * len(found), rel=0.01)
        assert len(found) == sum(row.heads for row in start.logits)
    assert family.says in " ".join(start.notes)
    once = state(model)
    eureka.clear_start(model, family.inputs, positions=positions, logits=logits)
    assert changed(model, once) == set()
    start.undo()
    assert changed(model, fresh) == set()


@pytest.mark.parametrize("name", list(REFUSED))
def test_a_family_that_cannot_be_rescaled_is_refused_in_one_sentence(name: str) -> None:
    family = REFUSED[name]
    model = family.made()
    fresh = state(model)
    with pytest.raises(RequestError) as caught:
        eureka.clear_start(model, family.inputs)
    assert family.says in str(caught.value)
    assert ". " not in str(caught.value)
    assert changed(model, fresh) == set()


def test_layers_that_share_their_weights_still_have_positions() -> None:
    model = ALBERT.made()
    fresh = state(model)
    start = eureka.clear_start(model, ALBERT.inputs)
    assert [(row.parameters, round(row.after, 2)) for row in start.positions] == [(TABLE, 1.0)]
    assert changed(model, fresh) == set(TABLE)
    assert "layers share them" in start.notes[0]


def test_words_are_not_taken_for_positions_where_padding_shifts_these() -> None:
    seen = torch.arange(TOKENS) >= torch.tensor([0, 6, 2, 5, 3, 1])[:, None]
    inputs = {"input_ids": torch.where(seen, ids(), 0), "attention_mask": seen.long()}
    start = eureka.clear_start(FAMILIES["OPT"].made(), inputs, logits=None)
    assert [(row.parameters, round(row.after, 2)) for row in start.positions] == [((DECODER,), 1.0)]
