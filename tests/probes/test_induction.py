"""Induction-head scores beside slow twins that follow their definition place by place, and on heads whose answer is known."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.attention.mask import Causal
from eureka.attention.statistics import attention_shares
from eureka.attention.variance import rows_in_block
from eureka.config import run_config
from eureka.errors import RequestError
from eureka.experiment import build
from eureka.patching.attach import AttentionCall, find_sites
from eureka.probes.capture import capture
from eureka.probes.induction import Shown, attention_scores
from eureka.runs import SiteRecord

transformers = pytest.importorskip("transformers")

WORDS, B, HALF, E, H = 30, 4, 7, 16, 2
SIZES = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 16}
IDS = {"vocab_size": WORDS, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}
GPT2 = {"n_embd": E, "n_layer": 2, "n_head": H, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
TASK = {"name": "induction", "vocabulary": WORDS, "length": 2 * HALF, "shortest_lag": 3, "longest_lag": 6}


def ours(**model: Any) -> nn.Module:
    config = run_config(task=TASK, model={"dim": E, **model}, attention={"name": "softmax"}, training={})
    _, made = build(config)
    return made


MODELS: dict[str, Callable[[], Any]] = {
    "decoder": lambda: ours(name="decoder", depth=2, heads=1),
    "encoder": lambda: ours(name="encoder"),
    "roberta in our loop": lambda: ours(name="hf_roberta", depth=1),
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**IDS, **GPT2)),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**IDS, **SIZES, num_key_value_heads=1)),
}


def made(name: str) -> Any:
    torch.manual_seed(0)
    model = MODELS[name]()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.7)  # fresh weights attend evenly, and all scores would be alike
    return model


def words(samples: int = B) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(3, WORDS, (samples, HALF), generator=draw).repeat(1, 2)


def calls_of(model: nn.Module, inputs: Tensor) -> list[AttentionCall]:
    with torch.no_grad(), capture(model, find_sites(model).sites) as found:
        model(inputs)
    return [calls[0] for calls in found.values()]


def weights_of(call: AttentionCall) -> Tensor:
    k = call.k.repeat_interleave(call.q.shape[1] // call.k.shape[1], dim=1)
    w = (call.operator or eureka.make_operator("softmax")).weights(call.q.float(), k.float(), call.mask).double().abs()
    return w / w.sum(-1, keepdim=True)


def slow_scores(weights: Tensor, tokens: Tensor, present: Tensor, asked: Tensor | None = None) -> dict[str, list[float]]:
    """Place by place, as the definition says; `weights` (B, H, N, N), `present` (B, N) without padding."""
    found: dict[str, list[float]] = {"prefix_matching": [], "prefix_chance": [], "previous_token": []}
    samples, heads, length = weights.shape[:3]
    for head in range(heads):
        prefix, even, previous = [], [], []
        for b in range(samples):
            for i in range(length):
                if not present[b, i]:
                    continue
                seen = int((weights[b, head, i] > 0).sum())
                targets = [j for j in range(1, i) if tokens[b, j - 1] == tokens[b, i] and present[b, j]]
                if targets and (asked is None or asked[b, i]):
                    prefix.append(sum(weights[b, head, i, j].item() for j in targets))
                    even.append(len(targets) / seen)
                if i > 0 and present[b, i - 1]:
                    previous.append(weights[b, head, i, i - 1].item())
        found["prefix_matching"].append(float(np.mean(prefix)))
        found["prefix_chance"].append(float(np.mean(even)))
        found["previous_token"].append(float(np.mean(previous)))
    return found


@pytest.mark.parametrize("fix", [None, "norm_softmax", "sigmoid"])
@pytest.mark.parametrize("name", MODELS)
def test_the_scores_are_those_of_the_definition_place_by_place(name: str, fix: str | None) -> None:
    model, tokens = made(name), words()
    if fix:
        eureka.patch(model, fix)
    found = eureka.induction_scores(model, tokens)
    for record, call in zip(found, calls_of(model, tokens), strict=True):
        wanted = slow_scores(weights_of(call), tokens, torch.ones_like(tokens, dtype=torch.bool))
        for key, values in wanted.items():
            assert record.values[key] == pytest.approx(values, rel=1e-4, abs=1e-6), key


def test_half_precision_is_measured_in_single() -> None:
    model, tokens = made("gpt2").bfloat16(), words()
    found = eureka.induction_scores(model, tokens)
    for record, call in zip(found, calls_of(model, tokens), strict=True):
        assert call.q.dtype == torch.bfloat16
        wanted = slow_scores(weights_of(call), tokens, torch.ones_like(tokens, dtype=torch.bool))
        assert record.values["prefix_matching"] == pytest.approx(wanted["prefix_matching"], rel=1e-4)
        assert all(math.isfinite(value) for value in record.values["copying"])


def test_padding_does_not_count_and_is_no_repetition() -> None:
    model, tokens = made("gpt2"), words()
    mask = torch.ones_like(tokens)
    mask[1:3, 9:] = 0
    tokens = tokens.where(mask.bool(), 0)
    inputs = {"input_ids": tokens, "attention_mask": mask}
    with torch.no_grad(), capture(model, find_sites(model).sites) as captured:
        model(**inputs)
    for record, calls in zip(eureka.induction_scores(model, inputs), captured.values(), strict=True):
        wanted = slow_scores(weights_of(calls[0]), tokens, mask.bool())
        for key, values in wanted.items():
            assert record.values[key] == pytest.approx(values, rel=1e-4), key


def test_only_the_places_that_are_asked_for_count() -> None:
    model, tokens = made("decoder"), words()
    asked = torch.rand(tokens.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    call = calls_of(model, tokens)[0]
    found = attention_scores(call, Shown(tokens, asked))
    wanted = slow_scores(weights_of(call), tokens, torch.ones_like(asked), asked)
    assert found["prefix_matching"] == pytest.approx(wanted["prefix_matching"], rel=1e-4)
    few = attention_scores(call, Shown(tokens, asked), samples=2)
    assert few["prefix_matching"] == pytest.approx(
        slow_scores(weights_of(call)[:2], tokens[:2], torch.ones_like(asked), asked)["prefix_matching"], rel=1e-4
    )


def test_tokens_that_are_not_repeated_have_no_prefix_to_match() -> None:
    tokens = torch.stack([torch.randperm(WORDS)[: 2 * HALF] for _ in range(B)])
    for record in eureka.induction_scores(made("gpt2"), tokens):
        assert list(record.values) == ["previous_token", "copying"]


def test_shares_over_several_blocks_of_rows_are_those_of_the_whole_matrix() -> None:
    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 900, 4), torch.randn(2, 1, 900, 4)
    assert rows_in_block(q, 900) < 900
    chosen = torch.rand(2, 1, 900, 900) < 0.1
    [found] = attention_shares(q, k, 0.5, [lambda rows: chosen[:, :, rows]], Causal())
    logits = (0.5 * q @ k.transpose(-2, -1)).masked_fill(~torch.ones(900, 900, dtype=torch.bool).tril(), -math.inf)
    torch.testing.assert_close(found, (logits.softmax(-1) * chosen).sum(-1), rtol=1e-4, atol=1e-6)


def slow_copying(embed: Tensor, value: Tensor, out: Tensor, unembed: Tensor) -> float:
    """From the eigenvalues of the whole circuit, a row and a column for each token."""
    circuit = (unembed @ out @ value @ embed.T).detach().double().numpy()
    eigenvalues = np.linalg.eigvals(circuit)
    return float(eigenvalues.sum().real / np.abs(eigenvalues).sum())


def circuits(name: str, model: Any) -> list[list[tuple[Tensor, Tensor, Tensor, Tensor]]]:
    """W_E, W_V, W_O and W_U of every layer and head, taken from each model by hand."""
    found = []
    if name in ("decoder", "encoder"):
        heads = model.blocks[0].attention.heads
        for block in model.blocks:
            value, out = block.attention.qkv.weight[2 * E :].chunk(heads), block.attention.out.weight.chunk(heads, dim=1)
            found.append([(model.embed.table.weight, v, o, model.head.weight) for v, o in zip(value, out, strict=True)])
    elif name == "gpt2":
        for block in model.transformer.h:
            value, out = block.attn.c_attn.weight.T[2 * E :].chunk(H), block.attn.c_proj.weight.T.chunk(H, dim=1)
            found.append([(model.transformer.wte.weight, v, o, model.lm_head.weight) for v, o in zip(value, out, strict=True)])
    elif name == "llama":  # one value head for all
        for block in model.model.layers:
            out = block.self_attn.o_proj.weight.chunk(H, dim=1)
            embed, unembed = model.model.embed_tokens.weight, model.lm_head.weight
            found.append([(embed, block.self_attn.v_proj.weight, o, unembed) for o in out])
    else:  # rows 0 and 1 of the embedding are RoBERTa's own
        for layer in model.body.encoder.layer:
            value, out = layer.attention.self.value.weight.chunk(H), layer.attention.output.dense.weight.chunk(H, dim=1)
            embed = model.body.embeddings.word_embeddings.weight[2:]
            found.append([(embed, v, o, model.head.weight) for v, o in zip(value, out, strict=True)])
    return found


@pytest.mark.parametrize("name", MODELS)
def test_copying_is_that_of_the_whole_circuit_of_every_token(name: str) -> None:
    model = made(name)
    for record, heads in zip(eureka.induction_scores(model, words()), circuits(name, model), strict=True):
        assert record.values["copying"] == pytest.approx([slow_copying(*head) for head in heads], abs=1e-4)


def linear(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight.data = weight.clone()
    return layer


class HandMade(nn.Module):
    """Attention whose matrices are given."""

    def __init__(self, q: Tensor, k: Tensor, v: Tensor, o: Tensor) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = map(linear, (q, k, v, o))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (layer(x)[:, None] for layer in (self.q_proj, self.k_proj, self.v_proj))
        mixed: Tensor = self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, 0])
        return mixed


class Planted(nn.Module):
    """The textbook circuit: a stream of (token, place, token before); the first head fills the third part, the second uses it."""

    def __init__(self, words: int, length: int, sharp: float = 1000.0) -> None:
        super().__init__()
        width = 2 * words + length
        token, place, before = torch.tensor_split(torch.eye(width), [words, words + length])
        self.table = nn.Embedding(words, width, _weight=token.clone())
        self.place = place
        self.previous = HandMade(sharp * place[:-1].T @ place[1:], torch.eye(width), token, before.T)
        self.finder = HandMade(sharp * before.T @ token, torch.eye(width), token, token.T)
        self.head = linear(token)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens) + self.place
        x = x + self.previous(x)
        logits: Tensor = self.head(self.finder(x))
        return logits

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def get_output_embeddings(self) -> nn.Module:
        return self.head


def test_a_planted_induction_head_scores_one_and_its_helper_looks_one_back() -> None:
    draw = torch.Generator().manual_seed(0)
    tokens = torch.stack([torch.randperm(11, generator=draw)[:8] for _ in range(16)]).repeat(1, 3)
    tokens = F.pad(tokens, (1, 0), value=11)  # the first place has none before it and looks at itself
    model = Planted(12, 25)
    assert (model(tokens)[:, 9:-1].argmax(-1) == tokens[:, 10:]).all(), "it does the task"
    previous, finder = eureka.induction_scores(model, tokens)
    assert finder.values["prefix_matching"] == pytest.approx([1.0], abs=1e-3)
    assert finder.values["copying"] == pytest.approx([1.0], abs=1e-6)
    assert finder.values["previous_token"][0] < 0.2
    assert previous.values["previous_token"] == pytest.approx([1.0], abs=1e-3)
    assert previous.values["prefix_matching"][0] < 0.01
    assert math.isnan(previous.values["copying"][0]), "it writes nothing that the logits read"


def test_a_head_that_lowers_what_it_looks_at_copies_negatively() -> None:
    model = Planted(12, 24)
    model.finder.o_proj.weight.data.neg_()
    assert eureka.induction_scores(model, torch.randint(12, (2, 24)))[1].values["copying"] == pytest.approx([-1.0])


def test_a_fresh_model_scores_near_chance() -> None:
    torch.manual_seed(0)
    model = ours(name="decoder", dim=64, depth=2, heads=2)
    for record in eureka.induction_scores(model, words(64)):
        assert record.values["prefix_matching"] == pytest.approx(record.values["prefix_chance"], abs=0.01)
        assert all(abs(value) < 0.3 for value in record.values["copying"])


def test_a_model_that_does_not_say_its_embeddings_has_no_copying() -> None:
    model = Planted(12, 24)
    model.get_output_embeddings = lambda: None  # type: ignore[method-assign, assignment, return-value]
    assert "copying" not in eureka.induction_scores(model, torch.randint(12, (2, 24)))[1].values


def test_weights_that_are_not_finite_have_no_copying_and_raise_nothing() -> None:
    model = Planted(12, 24)
    model.finder.o_proj.weight.data.fill_(math.inf)
    assert math.isnan(eureka.induction_scores(model, torch.randint(12, (2, 24)))[1].values["copying"][0])


def test_scoring_changes_none_of_the_models_bits() -> None:
    model, tokens = made("gpt2"), words()
    before = model(tokens).logits
    eureka.induction_scores(model, tokens)
    assert torch.equal(model(tokens).logits, before)
    assert not any(hasattr(type(module), "_eureka_base") for module in model.modules())


def test_a_probe_records_the_same_scores_beside_its_own_in_the_step_that_was_shown() -> None:
    model, tokens = made("gpt2"), words()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.0)
    with eureka.AttentionProbe(model, every=1) as probe:
        for shown in (True, False):
            assert probe.measures
            if shown:
                probe.show(tokens)
            model(tokens).logits.square().sum().backward()
            optimiser.step()
    wanted = eureka.induction_scores(model, tokens)
    first, second = probe.records
    for record, site in zip(wanted, first.sites, strict=True):
        for key, values in record.values.items():
            assert site.values[key] == pytest.approx(values), key
        assert {"entropy", "grad_q"} <= set(site.values)
    assert not any("copying" in site.values or "previous_token" in site.values for site in second.sites)
    assert "attention/transformer.h.1.attn/prefix_matching" in first.scalars()


@pytest.mark.parametrize("tokens", [torch.zeros(2, 5), torch.zeros(2, 5, 3, dtype=torch.long)])
def test_inputs_that_are_no_tokens_are_refused_in_a_sentence(tokens: Tensor) -> None:
    with pytest.raises(RequestError, match="the inputs are no tokens; give tokens="):
        eureka.induction_scores(nn.TransformerEncoderLayer(4, 1), tokens)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([[1, 2, 1]], "tokens is a tensor of integers, (samples, tokens), not a list of 1."),
        (torch.zeros(2, 3), "tokens is a tensor of integers, (samples, tokens), not a tensor of shape (2, 3) of float32."),
        (torch.zeros(3).long(), "tokens is a tensor of integers, (samples, tokens), not a tensor of shape (3,) of int64."),
        (torch.zeros(0, 4).long(), "tokens has the shape (0, 4); give a sample or more, of two tokens or more."),
        (torch.zeros(3, 1).long(), "tokens has the shape (3, 1); give a sample or more, of two tokens or more."),
    ],
)
def test_tokens_that_say_nothing_are_refused_in_a_sentence(tokens: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        eureka.induction_scores(made("gpt2"), words(), tokens)
    assert str(caught.value) == message


def test_what_is_no_model_or_cannot_be_run_is_refused_in_a_sentence() -> None:
    with pytest.raises(RequestError, match="not an object of type str; give the module itself"):
        eureka.induction_scores("gpt2", words())  # type: ignore[arg-type]
    with pytest.raises(
        RequestError, match=r"a pass of GPT2LMHeadModel over these inputs failed \(IndexError: index out of range"
    ):
        eureka.induction_scores(made("gpt2"), words() + WORDS)


def test_tokens_that_do_not_fit_are_refused_in_a_sentence() -> None:
    with pytest.raises(RequestError, match=r"is over tokens of shape \(2, 3\)"):
        eureka.induction_scores(made("gpt2"), words(), torch.zeros(2, 3, dtype=torch.long))


def test_features_can_be_scored_if_it_is_said_which_are_the_same() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    [record] = eureka.induction_scores(layer, torch.randn(4, 6, 8), torch.arange(3).repeat(4, 2))
    assert isinstance(record, SiteRecord)
    assert list(record.values) == ["prefix_matching", "prefix_chance", "previous_token"]
