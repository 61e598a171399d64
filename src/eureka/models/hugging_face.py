"""Hugging Face's own RoBERTa and GPT-2 from small random configs, on our tasks; their attention is swapped from outside."""

from __future__ import annotations

from typing import Any

from pydantic import PositiveFloat
from torch import Tensor, nn

from eureka.errors import MissingExtraError, RequestError
from eureka.models.transformer import Depth, Sizes

OWN = 2
"""Numbers that RoBERTa keeps for itself: 1 is padding, whose word and position it does not learn."""


class HuggingFace(nn.Module):
    """A bare model of transformers between an embedding of our tokens or features and a linear head; an answer at every token."""

    patched_from_outside = True
    """It makes its own attention; `experiment.build` patches the operators in."""
    token_shift = 0

    def __init__(
        self, input_shape: tuple[int, ...], classes: int, vocabulary: int | None, per_token: bool, body: Any, dim: int
    ) -> None:
        super().__init__()
        if not per_token:
            raise RequestError(
                "this model answers at every token; the task asks for one answer a sample. Try model.name=encoder."
            )
        self.body = body
        self.project = None if vocabulary else nn.Linear(input_shape[1], dim)
        self.head = nn.Linear(dim, classes)
        self._answers_tokens = classes == vocabulary

    def get_input_embeddings(self) -> nn.Module | None:
        """W_E; token t has row t + `token_shift`. None where inputs are no tokens."""
        return None if self.project is not None else self.body.get_input_embeddings()

    def get_output_embeddings(self) -> nn.Module | None:
        """W_U, a row for each token; None where answers are no tokens."""
        return self.head if self._answers_tokens else None

    def forward(self, inputs: Tensor) -> Tensor:
        given = {"input_ids": inputs + self.token_shift} if self.project is None else {"inputs_embeds": self.project(inputs)}
        return self.head(self.body(**given).last_hidden_state)  # type: ignore[no-any-return]


class RobertaSettings(Sizes):
    depth: Depth = 3
    mlp_ratio: PositiveFloat = 4.0


class Roberta(HuggingFace):
    """RobertaModel."""

    token_shift = OWN

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        vocabulary: int | None = None,
        per_token: bool = False,
        *,
        settings: RobertaSettings,
    ) -> None:
        dim, heads = settings.dim, settings.heads
        sizes = {"hidden_size": dim, "num_hidden_layers": settings.depth, "num_attention_heads": heads}
        rest = {"intermediate_size": round(dim * settings.mlp_ratio), "vocab_size": (vocabulary or 1) + OWN}
        dropouts = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        config, model = _classes("Roberta")
        made = config(max_position_embeddings=input_shape[0] + OWN, **sizes, **rest, **dropouts)
        super().__init__(input_shape, classes, vocabulary, per_token, model(made, add_pooling_layer=False), dim)


class GPT2Settings(Sizes):
    mlp_ratio: PositiveFloat = 4.0


class GPT2(HuggingFace):
    """GPT2Model."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        classes: int,
        vocabulary: int | None = None,
        per_token: bool = False,
        *,
        settings: GPT2Settings,
    ) -> None:
        dim = settings.dim
        inner = round(dim * settings.mlp_ratio)
        sizes = {"n_embd": dim, "n_layer": settings.depth, "n_head": settings.heads, "n_inner": inner}
        dropouts = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        ids = dict.fromkeys(("bos_token_id", "eos_token_id"))
        config, model = _classes("GPT2")
        made = config(vocab_size=vocabulary or 1, n_positions=input_shape[0], use_cache=False, **sizes, **dropouts, **ids)
        super().__init__(input_shape, classes, vocabulary, per_token, model(made), dim)


def _classes(family: str) -> tuple[Any, Any]:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("transformers", "hf") from None
    return getattr(transformers, f"{family}Config"), getattr(transformers, f"{family}Model")
