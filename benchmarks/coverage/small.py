"""Make the configs of transformers small: fewer layers, words and experts, narrower by one factor, so that ratios stay."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
    r"(num_experts_per_tok|moe_topk|moe_k|top_k_experts|num_experts_per_token|topk_group|n_group|num_expert_group|num_selected_experts)$"
)
HEADS = re.compile(r"(num|n)_(.*_)?heads?|.*_(num_)?(attention_)?heads|.*_key_value_heads")
"""Names of settings that count heads."""
OF_A_HEAD = re.compile(r".*head_dim|d_head|d_kv|dim_head|attention_head_size|rotary_dim|query_pre_attn_scalar|.*head_size")
"""Names of settings that say how wide one head is."""
UNSAID = {
    "pad_token_id": 0,
    "vocab_size": 100,
    "n_routed_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
}
"""Settings without which some models cannot be built, though their configs leave them out."""
WORDS = 120
"""Words in a vocabulary."""


@dataclass(frozen=True)
class Size:
    """How small a config is made."""

    narrower: int = 8
    """By this factor."""
    pictures: bool = True
    """Whether pictures are made small too; some must fit windows."""
    by_heads: bool = False
    """Fewer heads of the same width, instead of as many that are narrower."""
    layers: int = 2


def small(given: dict[str, Any], size: Size) -> dict[str, Any]:
    """The settings of a config, made small."""
    made = {key: _small(key, value, size) for key, value in given.items()}
    for key, value in UNSAID.items():
        if key in made and made[key] is None:
            made[key] = value
    _say_heads(made)
    if "depths" in given:
        made |= {key: given[key] for key in ("num_layers", "num_hidden_layers") if key in given}  # of stages
    else:
        _choose_outputs(given, made)
    if "per_layer_config" in made:
        made["per_layer_config"] = {}
    _shorten_lists(given, made)
    return made


def _choose_outputs(given: dict[str, Any], made: dict[str, Any]) -> None:
    """A backbone without stages gives the outputs of as many layers as before: the last ones."""
    for key in ("stage_names", "out_features", "out_indices", "_out_features", "_out_indices"):
        made.pop(key, None)
    wanted, layers = given.get("out_indices"), made.get("num_hidden_layers")
    if isinstance(wanted, (list, tuple)) and len(wanted) > 1 and isinstance(layers, int):
        made["num_hidden_layers"] = layers = max(layers, len(wanted))
        made["out_indices"] = [layers - len(wanted) + number for number in range(1, len(wanted) + 1)]


def _small(key: str, value: Any, size: Size) -> Any:
    if key == "mrope_section" and isinstance(value, list):
        return value if size.by_heads else _sections(value, size.narrower)
    if key == "rope_parameters" and isinstance(value, dict):
        return {name: _small(name, one, size) if name == "mrope_section" else one for name, one in value.items()}
    if isinstance(value, dict) and value.get("model_type") == "timm_backbone":
        return _resnet(len(value.get("out_indices") or [4]))
    if isinstance(value, dict):
        return small(value, size) if key.endswith("config") or "model_type" in value else value
    if isinstance(value, bool) or value is None:
        return value
    if key in ("image_size", "pretrain_image_size", "input_size"):
        return (64 if value % 16 == 0 else 56) if size.pictures and isinstance(value, int) and value > 64 else value
    if isinstance(value, int):
        return _smaller(key, value, size)
    if isinstance(value, (list, tuple)) and value and all(isinstance(one, int) and not isinstance(one, bool) for one in value):
        if key == "depths" or key.endswith(("blocks_per_stage", "num_block_repeats")):
            return [min(one, size.layers) for one in value]
        if WIDE.fullmatch(key) and not SAME.search(key):
            return [_narrow(one, size.narrower) for one in value]
    return value


def _resnet(outputs: int) -> dict[str, Any]:
    """In the place of a backbone of timm, which may not be installed."""
    stages = [f"stage{number}" for number in range(5 - outputs, 5)]
    return {
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1] * 4,
        "out_features": stages,
    }


def _smaller(key: str, value: int, size: Size) -> int:
    if key.endswith(("token_id", "token_index", "_id", "token_ids")):
        return value if value < WORDS else WORDS - 1 - (value % 40)
    if "vocab_size" in key and not key.startswith("type") and "position" not in key:
        return min(value, WORDS)
    if LAYERS.fullmatch(key) and not key.startswith(KEPT):
        return min(value, size.layers)
    if EXPERTS.fullmatch(key):
        return min(value, 4)
    if CHOSEN.fullmatch(key):
        return min(value, 2 if "group" not in key else 1)
    if key == "num_queries":
        return min(value, 12)
    if size.by_heads and OF_A_HEAD.fullmatch(key):
        return value
    if size.by_heads and HEADS.fullmatch(key):
        return max(1, value // size.narrower)
    if WIDE.fullmatch(key) and not SAME.search(key):
        return _narrow(value, size.narrower)
    return value


def _say_heads(made: dict[str, Any]) -> None:
    """Some configs leave out what follows from the others, and some models do not compute it."""
    heads, width = made.get("num_attention_heads"), made.get("hidden_size")
    if not isinstance(heads, int) or not isinstance(width, int):
        return
    if "num_key_value_heads" in made and made["num_key_value_heads"] is None:
        made["num_key_value_heads"] = heads
    if "head_dim" in made and made["head_dim"] is None:
        made["head_dim"] = width // heads


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
