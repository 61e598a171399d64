"""Make the configs of transformers small: fewer layers, words and experts, narrower by one factor, so that ratios stay."""

from __future__ import annotations

import re
from typing import Any

LAYERS = re.compile(
    r"(num_|n_|decoder_|encoder_|speech_|text_)*(hidden_)?(layers?|blocks|depth)$|depth|num_(decoder|encoder)_(layers|blocks)"
    r"|(en|de)coder_num_hidden_layers|resampler_depth|memory_attention_num_layers|memory_fuser_num_layers|num_adapter_layers"
)
"""Names of settings that count layers."""
KEPT = ("num_conv", "num_feat", "num_lstm", "num_query_pool", "insert_layer", "num_residual", "vision_feature", "max_window")
"""Names that look like a number of layers and are none."""
WIDE = re.compile(
    r".*(hidden|intermediate|embed|embedding|embd|projection|proj|ffn|mlp|model|kv|ff|inner|head|output|query|codebook|feature"
    r"|latent|codevector|out_hidden)_?(size|dim|width|inner)$|head_dim|d_model|d_head|d_kv|d_ff|d_inner|n_embd|n_inner|hidden|dim|width"
    r"|(encoder|decoder)_ffn_dim|.*_lora_rank|dim_head|attention_head_size|embed_dim_per_stage|hidden_sizes|emb_dim|out_channels"
    r"|.*moe_intermediate_size|mlp_dim|dim_model|dim_ff|.*_hidden_sizes|query_pre_attn_scalar|rotary_dim"
)
"""Names of settings that say how wide something is."""
SAME = re.compile(
    r"mlp_ratio|kernel|window|patch|image|stride|input_dim|query_dim|feature_projection|roi|type_vocab|coordinate|shape_size"
)
EXPERTS = re.compile(r"(num|n|moe_num|num_local|n_routed|num_routed)_(local_|routed_)?experts$")
CHOSEN = re.compile(
    r"(num_experts_per_tok|moe_topk|moe_k|top_k_experts|num_experts_per_token|topk_group|n_group|num_selected_experts)$"
)
WORDS = 120
"""Words in a vocabulary."""
NARROWER = 8


def small(given: dict[str, Any], narrower: int = NARROWER, *, pictures: bool = True) -> dict[str, Any]:
    """The settings of a config, made small; its pictures too, unless they must fit its windows."""
    made = {key: _small(key, value, narrower, pictures) for key, value in given.items()}
    if "pad_token_id" in made and made["pad_token_id"] is None:
        made["pad_token_id"] = 0
    if "depths" in given:
        made |= {key: given[key] for key in ("num_layers", "num_hidden_layers") if key in given}  # of stages
    if "per_layer_config" in made:
        made["per_layer_config"] = {}
    for key in ("stage_names", "out_features", "out_indices", "_out_features", "_out_indices"):
        made.pop(key, None)  # they name layers: let the config say them anew
    _shorten_lists(given, made)
    return made


def _small(key: str, value: Any, narrower: int, pictures: bool) -> Any:
    if key == "mrope_section" and isinstance(value, list):
        return _sections(value, narrower)
    if key == "rope_parameters" and isinstance(value, dict):
        return {name: _small(name, one, narrower, pictures) if name == "mrope_section" else one for name, one in value.items()}
    if isinstance(value, dict):
        return small(value, narrower, pictures=pictures) if key.endswith("config") or "model_type" in value else value
    if isinstance(value, bool) or value is None:
        return value
    if key in ("image_size", "pretrain_image_size", "input_size"):
        return (64 if value % 16 == 0 else 56) if pictures and isinstance(value, int) and value > 64 else value
    if isinstance(value, int):
        return _smaller(key, value, narrower)
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        if key == "depths" or key.endswith(("blocks_per_stage", "num_block_repeats")):
            return [min(one, 2) for one in value]
        if WIDE.fullmatch(key) and not SAME.search(key):
            return [_narrow(one, narrower) for one in value]
    return value


def _smaller(key: str, value: int, narrower: int) -> int:
    if key.endswith(("token_id", "token_index", "_id", "token_ids")):
        return value if value < WORDS else WORDS - 1 - (value % 40)
    if "vocab_size" in key and not key.startswith("type") and "position" not in key:
        return min(value, WORDS)
    if LAYERS.fullmatch(key) and not key.startswith(KEPT):
        return min(value, 2)
    if EXPERTS.fullmatch(key):
        return min(value, 4)
    if CHOSEN.fullmatch(key):
        return min(value, 2 if "group" not in key else 1)
    if key == "num_queries":
        return min(value, 12)
    if WIDE.fullmatch(key) and not SAME.search(key):
        return _narrow(value, narrower)
    return value


def _narrow(value: int, narrower: int) -> int:
    return value // narrower if value >= 32 and value % narrower == 0 else value


def _sections(value: list[int], narrower: int) -> list[int]:
    """Sections of a rotary embedding, whose sum is that many times smaller."""
    made = [max(1, one // narrower) for one in value]
    made[-1] += sum(value) // narrower - sum(made)
    return made


def _shorten_lists(given: dict[str, Any], made: dict[str, Any]) -> None:
    """A list with an entry for each layer gets as many entries as there are layers now, of as many kinds as fit."""
    for key in ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth"):
        before, after = given.get(key), made.get(key)
        if not isinstance(before, int) or not isinstance(after, int) or before == after:
            continue
        for name, value in given.items():
            if isinstance(value, (list, tuple)) and len(value) == before and name not in ("hidden_sizes", "depths"):
                made[name] = _kinds_first(list(value), after)
            elif (
                isinstance(value, (list, tuple))
                and value
                and name.endswith(("indexes", "indices", "_idxs", "_layers", "_blocks"))
            ):
                made[name] = [after - 1]


def _kinds_first(values: list[Any], count: int) -> list[Any]:
    """`count` of the values, in their order, with the first of each kind among them if that fits."""
    firsts = sorted({values.index(value) for value in values})[:count]
    rest = [number for number in range(len(values)) if number not in firsts]
    return [values[number] for number in sorted([*firsts, *rest[: count - len(firsts)]])]
