"""The decoder against Hugging Face's GPT-2, the post-norm encoder against its RoBERTa, and what all transformers promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import eureka
from eureka.attention.operator import Operator, make_operator
from eureka.errors import RequestError
from eureka.models.block import Block
from eureka.models.decoder import Decoder, DecoderSettings
from eureka.models.embedding import TokenEmbedding
from eureka.models.encoder import Encoder, EncoderSettings, ViT, ViTSettings
from eureka.models.registry import MODELS

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

Make = Callable[[int, int], Operator]
Randomise = Callable[[nn.Module], None]
V, N, DIM, HEADS, DEPTH = 23, 9, 32, 4, 2


def pairs(ours: Any, theirs: Any, *, transposed: bool = False) -> None:
    """Give their layer the weights of ours; GPT-2 keeps its matrices the other way round."""
    theirs.weight.data.copy_(ours.weight.T if transposed else ours.weight)
    if getattr(ours, "bias", None) is not None:
        theirs.bias.data.copy_(ours.bias)


def table_of(model: Encoder | Decoder) -> nn.Embedding:
    assert isinstance(model.embed, TokenEmbedding)
    return model.embed.table


def test_the_decoder_is_gpt2(softmax: Make, randomised: Randomise) -> None:
    torch.manual_seed(0)
    ours = Decoder((N,), V, softmax, V, True, settings=DecoderSettings(dim=DIM, depth=DEPTH, heads=HEADS, tied=True))
    randomised(ours)
    config = transformers.GPT2Config(
        vocab_size=V, n_positions=N, n_embd=DIM, n_layer=DEPTH, n_head=HEADS, n_inner=4 * DIM,
        activation_function="gelu", layer_norm_epsilon=1e-6, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
    )  # fmt: skip
    theirs: Any = transformers.GPT2LMHeadModel(config).eval()
    gpt: Any = theirs.transformer
    gpt.wte.weight.data.copy_(table_of(ours).weight)
    gpt.wpe.weight.data.copy_(ours.positions[0])
    pairs(ours.norm, gpt.ln_f)
    for block, layer in zip(ours.blocks, gpt.h, strict=True):
        assert isinstance(block, Block)
        pairs(block.norm1, layer.ln_1)
        pairs(block.norm2, layer.ln_2)
        pairs(block.attention.qkv, layer.attn.c_attn, transposed=True)
        pairs(block.attention.out, layer.attn.c_proj, transposed=True)
        pairs(block.up, layer.mlp.c_fc, transposed=True)
        pairs(block.down, layer.mlp.c_proj, transposed=True)
    tokens = torch.randint(V, (3, N))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, atol=1e-4, rtol=1e-4)


def test_the_post_norm_encoder_is_roberta(softmax: Make, randomised: Randomise) -> None:
    torch.manual_seed(0)
    ours = Encoder(
        (N,),
        V,
        softmax,
        V,
        True,
        settings=EncoderSettings(dim=DIM, depth=DEPTH, heads=HEADS, mlp_ratio=4.0, qkv_bias=True, post_norm=True),
    )
    randomised(ours)
    config = transformers.RobertaConfig(
        vocab_size=V, hidden_size=DIM, num_hidden_layers=DEPTH, num_attention_heads=HEADS, intermediate_size=4 * DIM,
        max_position_embeddings=N + 2, type_vocab_size=1, layer_norm_eps=1e-6, hidden_dropout_prob=0,
        attention_probs_dropout_prob=0, pad_token_id=1,
    )  # fmt: skip
    theirs: Any = transformers.RobertaModel(config, add_pooling_layer=False).eval()
    table = theirs.embeddings
    table.word_embeddings.weight.data.copy_(table_of(ours).weight)
    table.position_embeddings.weight.data[2:].copy_(ours.positions[0])  # its positions begin after the padding token's
    table.token_type_embeddings.weight.data.zero_()
    pairs(ours.norm, table.LayerNorm)
    for block, layer in zip(ours.blocks, theirs.encoder.layer, strict=True):
        assert isinstance(block, Block)
        weights, biases = block.attention.qkv.weight.chunk(3), block.attention.qkv.bias.chunk(3)
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            linear = getattr(layer.attention.self, part)
            linear.weight.data.copy_(weight)
            linear.bias.data.copy_(bias)
        pairs(block.attention.out, layer.attention.output.dense)
        pairs(block.norm1, layer.attention.output.LayerNorm)
        pairs(block.up, layer.intermediate.dense)
        pairs(block.down, layer.output.dense)
        pairs(block.norm2, layer.output.LayerNorm)
    tokens = torch.randint(2, V, (3, N))  # no padding among them
    torch.testing.assert_close(ours.hidden(tokens), theirs(tokens).last_hidden_state, atol=1e-4, rtol=1e-4)


def test_no_token_of_the_decoder_sees_what_comes_after_it(softmax: Make, randomised: Randomise) -> None:
    model = Decoder((N,), V, softmax, V, True, settings=DecoderSettings())
    randomised(model)
    tokens = torch.randint(V, (2, N), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % V
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5:], after[:, 5:])


def test_the_encoder_sees_everything(softmax: Make, randomised: Randomise) -> None:
    model = Encoder((N,), V, softmax, V, True, settings=EncoderSettings())
    randomised(model)
    tokens = torch.randint(V, (2, N), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % V
    assert not torch.allclose(model(tokens)[:, 0], model(changed)[:, 0])


@pytest.mark.parametrize("name", ["encoder", "decoder"])
def test_it_answers_once_or_at_every_token_as_the_task_asks(name: str, softmax: Make) -> None:
    context: dict[str, Any] = {"input_shape": (N,), "classes": 5, "make_attention": softmax, "vocabulary": V}
    tokens = torch.zeros(3, N, dtype=torch.long)
    assert MODELS.build(name, {}, per_token=True, **context)(tokens).shape == (3, N, 5)
    assert MODELS.build(name, {}, per_token=False, **context)(tokens).shape == (3, 5)


def test_a_decoder_that_answers_once_answers_at_the_last_token(softmax: Make) -> None:
    torch.manual_seed(0)
    every = Decoder((N, 4), 5, softmax, None, True, settings=DecoderSettings())
    once = Decoder((N, 4), 5, softmax, None, False, settings=DecoderSettings())
    once.load_state_dict(every.state_dict())
    inputs = torch.randn(2, N, 4)
    torch.testing.assert_close(once(inputs), every(inputs)[:, -1])


def test_tying_shares_one_matrix_and_needs_classes_that_are_tokens(softmax: Make) -> None:
    model = Decoder((N,), V, softmax, V, True, settings=DecoderSettings(tied=True))
    assert model.head.weight is table_of(model).weight
    with pytest.raises(RequestError, match=r"model.tied needs a task whose classes \(5\) are its tokens \(23\)"):
        Decoder((N,), 5, softmax, V, True, settings=DecoderSettings(tied=True))


def test_dropped_paths_keep_the_mean_and_rest_while_validating(softmax: Make) -> None:
    torch.manual_seed(0)
    block = Block(8, 2, softmax(2, 4), drop_path=0.25)
    branch = torch.ones(20_000, 3, 8)
    dropped = block._dropped(branch)
    assert sorted(set(dropped.flatten().tolist())) == pytest.approx([0, 4 / 3])
    assert dropped.mean().item() == pytest.approx(1.0, abs=0.02)
    assert bool((dropped == dropped[:, :1, :1]).all())  # a sample goes without the branch as a whole
    assert block.eval()._dropped(branch) is branch


def test_deeper_blocks_are_dropped_more_often(softmax: Make) -> None:
    model = ViT((3, 56, 56), 10, softmax, settings=ViTSettings())
    rates = [block.drop_path for block in model.blocks if isinstance(block, Block)]
    assert rates[0] == 0
    assert rates[-1] == pytest.approx(0.1)
    assert rates == sorted(rates)


def test_the_vit_is_by_default_the_paper_s(softmax: Make) -> None:
    model = ViT((3, 56, 56), 10, softmax, settings=ViTSettings())
    assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 2) == 3.75
    assert len(model.blocks) == 7
    assert model.positions.shape == (1, 197, 256)


def test_eight_tokens_of_the_quantum_protocol(softmax: Make) -> None:
    settings = {"patch": (14, 28), "readout": "mean"}
    model = MODELS.build("vit", settings, input_shape=(3, 56, 56), classes=10, make_attention=softmax)
    assert model.positions.shape == (1, 8, 256)
    assert model(torch.zeros(2, 3, 56, 56)).shape == (2, 10)


def test_models_of_pictures_refuse_tokens(softmax: Make) -> None:
    for name in ("vit", "resnet9"):
        with pytest.raises(RequestError, match="looks at pictures"):
            MODELS.build(name, {}, input_shape=(32,), classes=10, make_attention=softmax, vocabulary=5)


def test_embeddings_of_tokens_start_small(softmax: Make) -> None:
    model = Decoder((N,), 10, softmax, 500, True, settings=DecoderSettings(dim=64))
    assert table_of(model).weight.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("name", ["sinkhorn", "qr"])
def test_a_decoder_is_not_made_with_an_operator_that_is_not_causal(name: str) -> None:
    with pytest.raises(RequestError, match="is not causal"):
        Decoder((N,), V, lambda heads, size: make_operator(name, heads=heads, head_dim=size), V, True, settings=DecoderSettings())
    decoder = Decoder(
        (N,), V, lambda heads, size: make_operator("softmax", heads=heads, head_dim=size), V, True, settings=DecoderSettings()
    )
    with eureka.patch(decoder, name), pytest.raises(RequestError, match="is not causal"):
        decoder(torch.randint(V, (2, N)))
