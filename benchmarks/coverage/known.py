"""What a model needs and no rule finds: settings and inputs, by architecture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks.coverage.tensors import BATCH, FRAMES, TOKENS, ids, noise

Inputs = dict[str, Any]


def _rope(*sections: int) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": list(sections)}}


SERIES = {"prediction_length": 8, "context_length": 16}
SETTINGS: dict[str, dict[str, Any]] = {
    "autoformer": SERIES,
    "bamba": {"attn_layer_indices": [1]},
    "chameleon": {"vocabulary_map": {"<image>": 4}, "image_token_id": 4},
    "cohere_compass": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"]}, "mlp_layer_types": ["dense", "sparse"]},
    "depth_pro": {"patch_size": 64},
    "diffusion_gemma": {"text_config": {"top_k_experts": 2}},
    "ernie4_5_vl_moe": {"text_config": _rope(3, 3, 2)},
    "glm46v": {"text_config": _rope(2, 3, 3)},
    "glm4v": {"text_config": _rope(2, 3, 3)},
    "glm4v_moe": {"text_config": {**_rope(1, 1, 2), "head_dim": 16}},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "hunyuan_vl": {"text_config": _rope(2, 2, 2, 2)},
    "informer": SERIES,
    "layoutlmv3": {"coordinate_size": 16, "shape_size": 16},
    "lfm2_moe": {"layer_types": ["full_attention", "conv"]},
    "moonshine_streaming": {"num_key_value_heads": 8, "num_attention_heads": 8},
    "perceiver": {"d_model": 32},
    "pocket_tts": {"flow_head_config": {"condition_dim": 128}},
    "qwen4_exp": {"head_dim": 16, "num_key_value_heads": 2},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "local"]},
    "seggpt": {"merge_index": 0, "intermediate_hidden_state_indices": [1]},
    "shieldgemma2": {"yes_token_index": 7, "no_token_index": 8},
    "time_series_transformer": SERIES,
    "vits": {"vocab_size": 120},
    "xmod": {"languages": ["en_XX"], "default_language": "en_XX"},
}
"""In the config of the whole model, or in a part of it."""


def _series(model: Any) -> Inputs:
    past = model.config.context_length + max(model.config.lags_sequence)
    after, features = model.config.prediction_length, model.config.num_time_features
    return {
        "past_values": noise(BATCH, past),
        "past_time_features": noise(BATCH, past, features),
        "past_observed_mask": torch.ones(BATCH, past),
        "future_values": noise(BATCH, after),
        "future_time_features": noise(BATCH, after, features),
    }


def _decisions(model: Any) -> Inputs:
    config = model.config
    return {
        "states": noise(BATCH, TOKENS, config.state_dim),
        "actions": noise(BATCH, TOKENS, config.act_dim),
        "rewards": noise(BATCH, TOKENS, 1),
        "returns_to_go": noise(BATCH, TOKENS, 1),
        "timesteps": torch.arange(TOKENS).expand(BATCH, -1),
        "attention_mask": torch.ones(BATCH, TOKENS, dtype=torch.long),
    }


def _pair(_: Any) -> Inputs:
    return {"pixel_values": noise(BATCH, 2, 3, 64, 64)}


def _objects(model: Any) -> Inputs:
    return {
        "input_ids": ids(100),
        "visual_feats": noise(BATCH, 4, model.config.visual_feat_dim),
        "visual_pos": noise(BATCH, 4, 4).abs(),
    }


def _seen(model: Any) -> Inputs:
    size = model.config.vision_config.image_size
    return {
        "input_ids": ids(100),
        "pixel_values": noise(BATCH, 1, 3, size, size),
        "image_attention_mask": torch.ones(BATCH, TOKENS, 1),
    }


def _kosmos(model: Any) -> Inputs:
    size, queries = model.config.vision_config.image_size, model.config.latent_query_num
    where = torch.zeros(BATCH, queries + TOKENS, dtype=torch.bool)
    where[:, 1 : queries + 1] = True
    words = ids(100)[:, :1].expand(-1, queries + TOKENS)
    return {"input_ids": words, "pixel_values": noise(BATCH, 3, size, size), "image_embeds_position_mask": where}


def _prompted(model: Any) -> Inputs:
    height, width = (
        model.config.image_size if isinstance(model.config.image_size, (list, tuple)) else [model.config.image_size] * 2
    )
    shape = (BATCH, 3, height // 2, width)
    return {"pixel_values": noise(*shape), "prompt_pixel_values": noise(*shape), "prompt_masks": noise(*shape)}


def _video_and_text(model: Any) -> Inputs:
    size = model.config.max_img_size
    words = ids(100)
    return {"pixel_values": noise(BATCH, 2, 3, size, size), "input_ids": words, "attention_mask": torch.ones_like(words)}


def _documents(model: Any) -> Inputs:
    words = ids(60)
    return {
        "input_ids": words,
        "context_input_ids": words.repeat(model.config.n_docs, 1),
        "context_attention_mask": torch.ones_like(words).repeat(model.config.n_docs, 1),
        "decoder_input_ids": words.repeat(model.config.n_docs, 1),
        "doc_scores": noise(BATCH, model.config.n_docs),
    }


def _patches(_: Any) -> Inputs:
    return {"flattened_patches": noise(BATCH, 16, 2 + 3 * 16 * 16).abs()}


def _flattened(model: Any) -> Inputs:
    return {**_patches(model), "decoder_input_ids": ids(60)} if hasattr(model, "decoder") else _patches(model)


def _spots(model: Any) -> Inputs:
    size = model.config.vision_config.image_size
    points = torch.full((BATCH, 1, 1, 2), 8.0)
    return {"pixel_values": noise(BATCH, 3, size, size), "input_points": points, "input_labels": torch.ones(BATCH, 1, 1).long()}


INPUTS: dict[str, Callable[[Any], Inputs]] = {
    "autoformer": _series,
    "canine": lambda _: {"input_ids": ids(100).repeat(1, 4)},
    "decision_transformer": _decisions,
    "depth_pro": lambda _: {"pixel_values": noise(1, 3, 256, 256)},
    "efficientloftr": _pair,
    "granite_speech5": lambda _: {"input_features": noise(BATCH, FRAMES, 320)},
    "idefics": _seen,
    "informer": _series,
    "kosmos2": _kosmos,
    "lightglue": _pair,
    "lxmert": _objects,
    "perceiver": lambda model: {"inputs": noise(BATCH, TOKENS, model.config.d_model)},
    "pix2struct": _flattened,
    "rag": _documents,
    "reformer": lambda _: {"input_ids": ids(100).repeat(1, 13)[:, :128]},
    "sam2": _spots,
    "sam3_tracker": _spots,
    "seggpt": _prompted,
    "superglue": _pair,
    "time_series_transformer": _series,
    "tvp": _video_and_text,
}
"""Tried before what the names of a forward's parameters suggest."""


def with_settings(made: dict[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a config with those that are known; parts of it are merged."""
    merged = dict(made)
    for key, value in known.items():
        inner = merged.get(key)
        if isinstance(value, dict) and isinstance(inner, dict):
            merged[key] = with_settings(inner, value)
        elif not key.endswith("_config") or inner is not None:
            merged[key] = value
    return merged
