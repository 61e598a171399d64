"""Inputs for a small model, by the names of its forward's parameters."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.coverage.known import INPUTS
from benchmarks.coverage.tensors import BATCH, FRAMES, SAMPLES, TOKENS, generator, ids, noise

WITH_IDS = ("decoder_input_ids", "decoder_inputs_embeds")


def candidates(model: Any) -> Iterator[dict[str, Any]]:
    """Sets of inputs to try: those that are known, then the plainest first."""
    known = INPUTS.get(type(model).__module__.split(".")[-2])
    if known is not None:
        yield known(model)
    for given in _guessed(model):
        yield given
        if "use_cache" in _parameters(model):
            yield given | {"use_cache": False}


def _guessed(model: Any) -> Iterator[dict[str, Any]]:
    names = _parameters(model)
    if not names:
        return
    given_name = model.main_input_name[0] if isinstance(model.main_input_name, list) else model.main_input_name
    main = given_name if given_name in names else next(iter(names))
    required = [name for name, parameter in names.items() if parameter.default is inspect.Parameter.empty and name != main]
    for shape in _shapes(model, main):
        given = {main: shape} | {name: _by_name(model, name) for name in required}
        given = {name: value for name, value in given.items() if value is not None}
        yield given
        for extra in ("decoder_input_ids", "bbox", "input_ids", "attention_mask", "pixel_values", "input_features"):
            if extra in names and extra not in given and (value := _by_name(model, extra)) is not None:
                yield given | {extra: value}
        both = {
            name: _by_name(model, name) for name in ("input_ids", "pixel_values", "decoder_input_ids", "bbox") if name in names
        }
        yield given | {name: value for name, value in both.items() if value is not None}


def _parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(model.forward).parameters
    return {name: parameter for name, parameter in found.items() if parameter.kind not in kinds}


def _shapes(model: Any, main: str) -> Iterator[Any]:
    """Tensors that the main input might be."""
    if main in ("input_ids", "text_ids", "audio_codes"):
        words = vocabulary(model)
        yield ids(words)
        yield ids(words, setting(model, ("num_codebooks", "num_quantizers"), 3) + 1)
        yield ids(words, 3, 4)
        return
    if main in ("pixel_values", "pixel_values_videos", "image", "images", "hidden_states", "pixel_values_images"):
        yield from _pictures(model)
        return
    if main == "input_values":
        yield noise(BATCH, SAMPLES)
        yield noise(BATCH, 1, SAMPLES)
        yield noise(BATCH, FRAMES, setting(model, ("num_mel_bins", "mel_dim"), 80))
        yield noise(BATCH, setting(model, ("max_length",), 1024), setting(model, ("num_mel_bins",), 128))
        return
    if main in ("input_features", "spectrogram", "audio_features"):
        bins = setting(
            model,
            ("num_mel_bins", "feature_size", "input_feat_per_channel", "n_mels", "feature_projection_input_dim", "input_dim"),
            80,
        )
        frames = 2 * setting(model, ("max_source_positions",), FRAMES // 2)
        yield noise(BATCH, FRAMES, bins)
        yield noise(BATCH, bins, frames)
        yield noise(BATCH, 1, 1001, 64)
        yield noise(BATCH, bins, FRAMES)
        return
    if main in ("past_values", "time_series_values"):
        channels = setting(model, ("num_input_channels", "input_size"), 1)
        length = setting(model, ("context_length",), 32)
        yield noise(BATCH, length, channels)
        yield noise(BATCH, length)
        yield noise(BATCH, length + 8)
        return
    width = setting(model, ("hidden_size", "d_model", "embed_dim", "dim"), 64)
    yield noise(BATCH, TOKENS, width)
    yield noise(BATCH, width, TOKENS)


def _pictures(model: Any) -> Iterator[Tensor]:
    channels = setting(model, ("num_channels", "in_channels", "in_chans", "input_channels"), 3)
    channels = channels if isinstance(channels, int) else 3
    size = setting(model, ("image_size", "img_size"), 64)
    height, width = size if isinstance(size, (list, tuple)) else (size, size)
    frames = setting(model, ("num_frames", "frames_per_clip"), 4)
    yield noise(BATCH, channels, height, width)
    yield noise(BATCH, frames, channels, height, width)
    yield noise(BATCH, channels, frames, height, width)
    yield noise(BATCH, channels, 224, 224)
    yield noise(BATCH, 1, channels, height, width)
    yield noise(BATCH, 2, channels, height, width)
    patch = setting(model, ("patch_size",), 16)
    if isinstance(patch, int):
        yield noise(BATCH, 16, channels * patch * patch)


def _by_name(model: Any, name: str) -> Any:
    """What a parameter of this name is given; None if nobody knows."""
    words = vocabulary(model)
    if name in ("input_ids", "decoder_input_ids", "labels", "target_ids"):
        return ids(words)
    if name == "task_inputs":
        return ids(words)
    if name == "bbox":
        return torch.randint(0, 50, (BATCH, TOKENS, 4), generator=generator()).sort(dim=-1).values
    if name in ("attention_mask", "pixel_attention_mask"):
        return torch.ones(BATCH, TOKENS, dtype=torch.long)
    if name in ("pixel_values", "image"):
        return next(_pictures(model))
    if name in ("grid_thw", "image_grid_thw", "video_grid_thw"):
        return torch.tensor([[1, 4, 8]])
    if name in ("hidden_states", "inputs_embeds", "encoder_hidden_states", "embeddings", "input_embeds"):
        return noise(BATCH, TOKENS, setting(model, ("hidden_size", "d_model", "embed_dim"), 64))
    if name in ("visual_feats",):
        return noise(BATCH, TOKENS, setting(model, ("visual_feat_dim",), 64))
    if name in ("visual_pos",):
        return noise(BATCH, TOKENS, 4).abs()
    if name == "input_features":
        return noise(BATCH, FRAMES, setting(model, ("num_mel_bins", "feature_size", "feature_projection_input_dim"), 80))
    if name == "past_time_features":
        return noise(BATCH, setting(model, ("context_length",), 32), setting(model, ("num_time_features",), 1))
    if name == "past_observed_mask":
        return torch.ones(BATCH, setting(model, ("context_length",), 32))
    if name == "interpolate_pos_encoding":
        return False
    return None


def setting(model: Any, names: tuple[str, ...], otherwise: Any) -> Any:
    """The first of these settings that the config or one of its parts has."""
    places = [model.config, *(v for v in vars(model.config).values() if hasattr(v, "to_dict"))]
    for place in places:
        for name in names:
            value = getattr(place, name, None)
            if value is not None and not isinstance(value, bool):
                return value
    return otherwise


def vocabulary(model: Any) -> int:
    """How many words every table of words has."""
    tables = [module.num_embeddings for module in model.modules() if isinstance(module, nn.Embedding)]
    return min([size for size in tables if size >= 60] or [60])
