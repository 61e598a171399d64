"""Small models of transformers, with fresh weights: nothing is downloaded."""

from __future__ import annotations

from typing import Any

from torch import nn


def _with_loss(model: Any) -> nn.Module:
    """Names the loss that the library falls back to, with a warning, for models of this name."""
    model.loss_type = "ForCausalLM"
    found: nn.Module = model
    return found


def gpt2(
    vocabulary: int, length: int, dim: int = 32, depth: int = 2, heads: int = 4, dropout: float = 0.0, **more: Any
) -> nn.Module:
    """Shifts the labels itself."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=vocabulary, n_positions=length, n_embd=dim, n_layer=depth, n_head=heads, initializer_range=0.1,
        resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout, bos_token_id=None, eos_token_id=None,
        use_cache=False, **more,
    )  # fmt: skip
    made: nn.Module = GPT2LMHeadModel(config)  # type: ignore[no-untyped-call]
    return _with_loss(made)


def bert(
    head: str, vocabulary: int, length: int, dim: int = 32, depth: int = 2, heads: int = 4, dropout: float = 0.0, **more: Any
) -> nn.Module:
    """`head` is the class's name after Bert: ForMaskedLM, LMHeadModel or ForSequenceClassification."""
    import transformers

    config = transformers.BertConfig(
        vocab_size=vocabulary, max_position_embeddings=length, hidden_size=dim, num_hidden_layers=depth,
        num_attention_heads=heads, intermediate_size=2 * dim, initializer_range=0.1, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout, type_vocab_size=1, use_cache=False, **more,
    )  # fmt: skip
    made: nn.Module = getattr(transformers, f"Bert{head}")(config)
    return _with_loss(made) if head == "LMHeadModel" else made


def vit(side: int, patch: int, classes: int, dim: int = 32, depth: int = 2, heads: int = 4, dropout: float = 0.0) -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=side, patch_size=patch, num_channels=1, hidden_size=dim, num_hidden_layers=depth, num_attention_heads=heads,
        intermediate_size=2 * dim, initializer_range=0.1, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    config.num_labels = classes
    return ViTForImageClassification(config)
