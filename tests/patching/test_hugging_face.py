from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.errors import RequestError

transformers = pytest.importorskip("transformers")

PADDINGS = ("none", "right", "left")
CAUSAL = ("gpt2", "llama")


def assert_all_close(found: list[Tensor], wanted: list[Tensor]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("padding", PADDINGS)
def test_a_model_patched_with_plain_softmax_is_the_model_itself(name: str, padding: str, case: Callable[..., Any]) -> None:
    if name == "vit" and padding != "none":
        pytest.skip("pictures have no padding")
    it = case(name, padding)
    wanted = it.outputs_and_gradients()
    with eureka.patch(it.model, "softmax") as patched:
        assert len(patched.sites) == it.sites
        found = it.outputs_and_gradients()
    assert_all_close(found, wanted)
    again = it.outputs_and_gradients()
    assert all(torch.equal(one, other) for one, other in zip(again, wanted, strict=True))


@pytest.mark.parametrize("padding", PADDINGS)
def test_norm_softmax_is_the_explicit_formula(
    name: str, padding: str, case: Callable[..., Any], explicitly: Callable[[nn.Module], None], regimes: list[float]
) -> None:
    if name == "vit" and padding != "none":
        pytest.skip("pictures have no padding")
    it = case(name, padding)
    plain = it.outputs()
    with eureka.patch(it.model, "norm_softmax"):
        found = it.outputs_and_gradients()
    explicitly(it.model)
    assert_all_close(found, it.outputs_and_gradients())
    assert min(regimes) < 0.9 and max(regimes) > 0.1, "both regimes are needed for this to mean anything"  # noqa: PT018
    assert (found[0] - plain).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5", "llama"])
def test_a_model_that_runs_eager_attention_is_switched(
    family: str, case: Callable[..., Any], explicitly: Callable[[nn.Module], None]
) -> None:
    it = case(family, "right")
    it.model.set_attn_implementation("eager")
    with eureka.patch(it.model, "norm_softmax") as patched:
        assert len(patched.sites) == it.sites
        found = it.outputs_and_gradients()
    assert it.model.config._attn_implementation == "eager"
    explicitly(it.model)
    assert_all_close(found, it.outputs_and_gradients())


@pytest.mark.parametrize("fix", ["softmax", "norm_softmax"])
@pytest.mark.parametrize("family", ["gpt2", "llama", "t5", "bart"])
def test_generating_with_a_cache_gives_the_words_that_generating_without_one_gives(
    family: str, fix: str, case: Callable[..., Any]
) -> None:
    it = case(family, "left")
    it.model.eval()
    given = {key: value for key, value in it.inputs.items() if key != "decoder_input_ids"}
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with eureka.patch(it.model, fix):
        cached = it.model.generate(**given, **options)
        assert torch.equal(cached, it.model.generate(**given, **options, use_cache=False))
    plain = it.model.generate(**given, **options)
    assert torch.equal(cached, plain) == (fix == "softmax")


def test_a_static_cache_is_read_only_as_far_as_it_is_written(case: Callable[..., Any]) -> None:
    it = case("llama")
    it.model.eval()
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    with eureka.patch(it.model, "norm_softmax"):
        dynamic = it.model.generate(**it.inputs, **options)
        static = it.model.generate(**it.inputs, **options, cache_implementation="static", disable_compile=True)
    assert torch.equal(dynamic, static)


def test_attention_weights_that_are_asked_for_are_those_of_the_operator(case: Callable[..., Any]) -> None:
    it = case("bert", "right")
    with eureka.patch(it.model, "norm_softmax"):
        shown = it.model(**it.inputs, output_attentions=True).attentions
    assert len(shown) == 2
    torch.testing.assert_close(shown[0].sum(-1), torch.ones(3, 2, 9).double())
    it.model.set_attn_implementation("eager")
    plain = it.model(**it.inputs, output_attentions=True).attentions
    assert (shown[0] - plain[0]).abs().max() > 1e-2


@pytest.mark.parametrize("family", ["gpt2", "llama", "bart", "vit"])
def test_attention_weights_under_eager_attention_are_returned_and_are_in_the_graph(family: str, case: Callable[..., Any]) -> None:
    it = case(family)
    it.model.set_attn_implementation("eager")
    plain = it.model(**it.inputs, output_attentions=True)
    with eureka.patch(it.model, "softmax"):
        found = it.model(**it.inputs, output_attentions=True)
    name = "decoder_attentions" if family == "bart" else "attentions"
    assert len(found[name]) == len(plain[name]) > 0
    for one, other in zip(found[name], plain[name], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    found[name][0].retain_grad()
    found.logits.sum().backward()
    assert found[name][0].grad is not None


def test_another_model_made_from_the_same_config_is_left_alone(case: Callable[..., Any]) -> None:
    it = case("bert")
    other = type(it.model)(it.model.config)
    other.load_state_dict(it.model.state_dict())
    before = other(**it.inputs).logits
    with eureka.patch(it.model, "norm_softmax"):
        assert (it.outputs() - before).abs().max() > 1e-3
        assert torch.equal(other(**it.inputs).logits, before)
        assert it.model.config._attn_implementation == "sdpa"


def test_layers_that_are_not_chosen_keep_their_attention(case: Callable[..., Any]) -> None:
    it = case("gpt2")
    hidden = it.model(**it.inputs, output_hidden_states=True).hidden_states
    with eureka.patch(it.model, "norm_softmax", layers="*.h.1.*") as patched:
        assert [site.name for site in patched.sites] == ["transformer.h.1.attn"]
        found = it.model(**it.inputs, output_hidden_states=True).hidden_states
    assert torch.equal(found[1], hidden[1])
    assert not torch.allclose(found[2], hidden[2])


def test_a_change_of_the_config_reaches_a_patched_layer(case: Callable[..., Any]) -> None:
    it = case("gpt2")
    attention = it.model.transformer.h[0].attn
    with eureka.patch(it.model, "softmax"):
        it.model.config.some_new_setting = 17
        assert attention.config.some_new_setting == 17
        attention.config.other = 3
    assert it.model.config.other == 3


@pytest.mark.parametrize("implementation", ["flash_attention_2", "flex_attention"])
def test_an_implementation_with_masks_of_its_own_is_refused(implementation: str, case: Callable[..., Any]) -> None:
    it = case("bert")
    it.model.config._attn_implementation_internal = implementation
    with pytest.raises(RequestError, match=rf"{implementation}.*set_attn_implementation\('sdpa'\)"):
        eureka.patch(it.model, "norm_softmax")
    assert type(it.model.bert.encoder.layer[0].attention.self).__name__ == "BertSelfAttention"
    assert "_eureka_slots" not in vars(it.model.bert.encoder.layer[0].attention.self)


def gemma2() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    config = transformers.Gemma2Config(vocab_size=20, intermediate_size=16, attn_logit_softcapping=0.5, **sizes)
    return transformers.Gemma2ForCausalLM(config)


def gpt_oss() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    config = transformers.GptOssConfig(
        vocab_size=20, intermediate_size=16, num_local_experts=2, num_experts_per_tok=1, layer_types=["full_attention"], **sizes
    )
    return transformers.GptOssForCausalLM(config)


@pytest.mark.parametrize(("make", "what"), [(gemma2, "a soft cap on its logits"), (gpt_oss, "attention sinks")])
def test_a_soft_cap_and_attention_sinks_are_kept_and_refused_where_they_mean_nothing(make: Callable[[], Any], what: str) -> None:
    torch.manual_seed(0)
    model, ids = make().eval(), torch.randint(0, 20, (2, 6))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.5)
    model.set_attn_implementation("eager")
    plain = model(ids).logits
    with eureka.patch(model, "softmax"):
        torch.testing.assert_close(model(ids).logits, plain)
    with eureka.patch(model, "norm_softmax"):
        assert (model(ids).logits - plain).abs().max() > 1e-3
    with pytest.raises(RequestError, match=f"has {what}, which Linear knows no meaning of"):
        eureka.patch(model, "linear")


def test_learned_operators_are_trained_and_saved_with_the_model(case: Callable[..., Any]) -> None:
    it = case("bert")
    before = set(it.model.state_dict())
    with eureka.patch(it.model, "learnable_temperature") as patched:
        added = set(it.model.state_dict()) - before
        assert len(added) == len(list(patched.parameters())) == 2
        it.outputs_and_gradients()
        assert all(parameter.grad is not None and parameter.grad.abs().max() > 0 for parameter in patched.parameters())
        state = copy.deepcopy(it.model.state_dict())
    assert set(it.model.state_dict()) == before
    with eureka.patch(it.model, "learnable_temperature"):
        it.model.load_state_dict(state)


def test_an_implementation_that_is_set_after_patching_is_refused_in_one_sentence(case: Callable[..., Any]) -> None:
    it = case("bert", "right")
    layer = it.model.bert.encoder.layer[0].attention.self
    with eureka.patch(it.model, "norm_softmax"), pytest.raises(RequestError, match=r"made for flex attention.*'sdpa'"):
        layer(torch.randn(3, 9, 16).double(), attention_mask=object())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of transformers, as it makes the mask
def test_real_flex_attention_that_is_set_after_patching_is_refused_in_one_sentence(case: Callable[..., Any]) -> None:
    it = case("llama", "right")
    with eureka.patch(it.model, "norm_softmax"), torch.no_grad():
        it.outputs()
        it.model.set_attn_implementation("flex_attention")
        with pytest.raises(RequestError, match=r"made for flex attention.*'sdpa'"):
            it.outputs()
        it.model.set_attn_implementation("sdpa")
        it.outputs()
