from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import eureka
from eureka.errors import RequestError, WorkError
from eureka.patching.attach import AttentionCall, Site, attached, find_sites
from eureka.probes.capture import capture
from eureka.probes.head_statistics import head_statistics

transformers = pytest.importorskip("transformers")

E, H, B, N = 16, 2, 3, 7
SIZES = {"hidden_size": E, "num_hidden_layers": 2, "num_attention_heads": H, "intermediate_size": 16}
IDS = {"vocab_size": 30, "bos_token_id": 1, "eos_token_id": None, "pad_token_id": 0}


class Home(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.num_heads, self.head_dim = nn.Linear(E, 3 * E), H, E // H

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, E // H)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


def own() -> nn.Module:
    from eureka.config import run_config
    from eureka.experiment import build

    config = run_config(task={"name": "tiles"}, model={"name": "encoder", "dim": E}, attention={"name": "softmax"}, training={})
    model: Any = build(config)[1]
    block: nn.Module = model.blocks[0]
    return block


def words() -> dict[str, Tensor]:
    mask = torch.ones(B, N, dtype=torch.long)
    mask[1, 5:] = 0
    return {"input_ids": torch.randint(3, 30, (B, N), generator=torch.Generator().manual_seed(0)), "attention_mask": mask}


def features() -> dict[str, Tensor]:
    return {"": torch.randn(B, N, E, generator=torch.Generator().manual_seed(0))}


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
GPT2 = {"n_embd": E, "n_layer": 2, "n_head": H, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], dict[str, Tensor]]]] = {
    "home-made": (lambda: nn.Sequential(Home(), Home()), features),
    "own": (own, features),
    "torch.nn": (lambda: nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True), features),
    "gpt2": (lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**IDS, **GPT2)), words),
    "bert": (lambda: transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=30, **SIZES, **NO_DROPOUT)), words),
    "neox": (lambda: transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**IDS, **SIZES)), words),
    "llama": (lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**IDS, **SIZES, num_key_value_heads=1)), words),
}


def made(name: str) -> tuple[Any, Callable[[], Tensor]]:
    torch.manual_seed(0)
    model, inputs = MODELS[name][0](), MODELS[name][1]()

    def run() -> Tensor:
        found: Tensor = model(inputs[""]) if "" in inputs else model(**inputs).logits
        return found.square().sum()

    return model, run


@pytest.fixture(params=list(MODELS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def explicit(call: AttentionCall) -> dict[str, list[float]]:
    """The same measures from the explicit weights."""
    k = call.k.repeat_interleave(call.q.shape[1] // call.k.shape[1], dim=1)
    operator = call.operator or eureka.make_operator("softmax")
    p = operator.weights(call.q, k, call.mask).double().abs()
    visible = p > 0
    n = visible.sum(-1)
    p = p / p.sum(-1, keepdim=True)
    entropy = -(p * p.clamp_min(1e-300).log()).sum(-1) / n.clamp_min(2).log()
    squares = (p * p).sum(-1)
    a = (call.q @ k.transpose(-2, -1)).double()
    mean = (a * visible).sum(-1, keepdim=True) / n[..., None]
    spread = (((a - mean) ** 2 * visible).sum(-1) / n).sqrt()
    several = n >= 2
    rows: dict[str, tuple[Tensor, Tensor]] = {
        "entropy": (entropy, several),
        "participation": (squares, n >= 1),
        "spread": (spread, several),
        "near_uniform": ((entropy >= 0.98).double(), several),
        "near_one_hot": ((squares >= 0.9).double(), several),
    }
    return {key: [value[:, h][keep[:, h]].mean().item() for h in range(value.shape[1])] for key, (value, keep) in rows.items()}


@pytest.mark.parametrize("fix", [None, "norm_softmax", "sigmoid", "qk_norm"])
def test_the_measures_are_those_of_the_explicit_weights(name: str, fix: str | None) -> None:
    model, run = made(name)
    patched = eureka.patch(model, fix) if fix else None
    with torch.no_grad(), capture(model, find_sites(model).sites) as calls:
        run()
    for call, *others in calls.values():
        assert not others
        assert (call.operator is None) == (fix is None and name != "own")
        found, wanted = head_statistics(call), explicit(call)
        for key, values in wanted.items():
            assert found[key] == pytest.approx(values, rel=1e-3, abs=1e-4), key
    if patched:
        patched.undo()


def test_watching_a_model_changes_none_of_its_bits(name: str) -> None:
    model, run = made(name)
    loss = run()
    with eureka.AttentionProbe(model, every=1) as probe:
        assert torch.equal(run(), loss)
        probe.step()
    assert len(probe.records) == 1
    assert torch.equal(run(), loss)


def projected(model: nn.Module, module: nn.Module) -> Tensor:
    """What goes into the projections of an attention module, during the next forward pass."""
    layers = {"qkv", "c_attn", "query", "query_key_value", "q_proj"}
    inner = next((child for key, child in module.named_children() if key in layers), module)
    kept: list[Tensor] = []
    handle = inner.register_forward_pre_hook(
        lambda _, args, kwargs: kept.append((args or tuple(kwargs.values()))[0]), with_kwargs=True
    )
    kept.append(handle)  # type: ignore[arg-type]
    return kept  # type: ignore[return-value]


def test_gradients_are_split_into_those_of_q_k_and_v_of_each_head(name: str) -> None:
    """By the chain rule: ∂W_h = Σ ∂(x W_h)ᵀ x, from the gradients of q, k and v themselves."""
    model, run = made(name)
    sites = find_sites(model).sites
    inputs = {site.name: projected(model, site.module) for site in sites}
    calls: dict[str, AttentionCall] = {}

    def keep(site: Site, call: AttentionCall) -> None:
        assert call.v is not None
        for tensor in (call.q, call.k, call.v):
            tensor.retain_grad()
        calls[site.name] = call

    with (
        eureka.patch(model, "softmax"),
        eureka.AttentionProbe(model, every=1) as probe,
        attached(model, sites, observer=keep),
    ):
        run().backward()  # type: ignore[no-untyped-call]
        probe.step()
    letters = "v" if name in ("neox", "llama") else "qkv"  # rotary positions come between the projection and the product
    for site in sites:
        x = inputs[site.name][1].detach()
        record = probe.records[0].site(site.name)
        for letter in letters:
            tensor = getattr(calls[site.name], letter)
            gradient = torch.einsum("bhnd,bne->hde", tensor.grad, x).abs().mean(dim=(1, 2)).tolist()
            assert record.values["grad_" + letter] == pytest.approx(gradient, rel=1e-4)
        q, k, v = (record.values["grad_" + letter] for letter in "qkv")
        every = [(q[h] + k[h % len(k)]) / 2 / v[h % len(v)] for h in range(H)]
        assert record.values["grad_ratio"] == pytest.approx(every)


def trained(model: nn.Module, run: Callable[[], Tensor], steps: int, **options: Any) -> None:
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        run().backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def test_a_record_is_made_every_so_many_steps_and_the_model_is_itself_in_between() -> None:
    model, run = made("bert")
    types: list[bool] = []

    def run_and_look() -> Tensor:
        attention = model.bert.encoder.layer[0].attention.self
        types.append(hasattr(type(attention), "_eureka_base"))
        return run()

    logged: list[int] = []
    with eureka.AttentionProbe(model, every=3, on_record=lambda record: logged.append(record.step)) as probe:
        trained(model, run_and_look, 8)
    assert logged == [record.step for record in probe.records] == [0, 3, 6]
    assert types == [step % 3 == 0 for step in range(8)]
    assert "attention/bert.encoder.layer.1.attention.self/grad_ratio" in probe.records[0].scalars()


def test_a_validation_in_between_is_not_taken_for_training() -> None:
    model, run = made("home-made")
    with eureka.AttentionProbe(model, every=1) as probe:
        with torch.no_grad():
            model(100 * torch.randn(B, N, E))
        trained(model, run, 1)
    with eureka.AttentionProbe(made("home-made")[0], every=1) as again:
        trained(again.model, lambda: again.model(features()[""]).square().sum(), 1)
    assert probe.records[0].sites == again.records[0].sites


def test_a_probe_sees_the_patch_and_lives_through_its_undoing() -> None:
    model, run = made("gpt2")
    with eureka.AttentionProbe(model, every=1) as probe:
        trained(model, run, 1)
        with eureka.patch(model, "temperature", settings={"temperature": 0.01}):
            trained(model, run, 1)
        trained(model, run, 1)
    plain, hot, again = (record.sites[0].mean("entropy") for record in probe.records)
    assert hot < plain  # type: ignore[operator]
    assert again == pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_layer_is_measured_once(reentrant: bool) -> None:
    model, _ = made("torch.nn")
    x = features()[""].requires_grad_()
    with eureka.AttentionProbe(model, every=1) as probe:
        trained(model, lambda: checkpoint(model, x, use_reentrant=reentrant).square().sum(), 2)
    with eureka.AttentionProbe(other := made("torch.nn")[0], every=1) as plain:
        trained(other, lambda: other(x).square().sum(), 2)
    for one, two in zip(probe.records, plain.records, strict=True):
        assert one.sites[0].values["entropy"] == pytest.approx(two.sites[0].values["entropy"])
        assert one.sites[0].values["grad_q"] == pytest.approx(two.sites[0].values["grad_q"])


def test_the_fused_layer_of_torch_is_seen_in_eval_mode_too() -> None:
    model, run = made("torch.nn")
    model.eval()
    with eureka.AttentionProbe(model) as probe, probe.look(), torch.no_grad():
        run()
    assert len(probe.records) == 1


def test_only_the_first_samples_of_a_batch_are_looked_at() -> None:
    model, _ = made("bert")
    inputs = words()
    with eureka.AttentionProbe(model, samples=2) as probe, probe.look(), torch.no_grad():
        model(**inputs)
    with eureka.AttentionProbe(model, samples=None) as whole, whole.look(), torch.no_grad():
        model(**{key: value[:2] for key, value in inputs.items()})
    for one, other in zip(probe.records[0].sites, whole.records[0].sites, strict=True):
        for key, values in one.values.items():
            assert values == pytest.approx(other.values[key], rel=1e-4)


def test_a_model_that_did_not_run_is_told() -> None:
    model, _ = made("bert")
    with eureka.AttentionProbe(model, every=1) as probe, pytest.raises(WorkError, match="saw no attention call in step 0"):
        probe.step()


def test_wrong_requests_are_refused() -> None:
    with pytest.raises(RequestError, match="not every 0"):
        eureka.AttentionProbe(made("bert")[0], every=0)
    with pytest.raises(RequestError, match="no attention found in Linear"):
        eureka.AttentionProbe(nn.Linear(2, 2))


def test_closing_leaves_nothing_behind(name: str) -> None:
    model, run = made(name)
    before = [(type(module), sorted(vars(module)), list(module._forward_pre_hooks)) for module in model.modules()]
    with eureka.AttentionProbe(model, every=1):
        trained(model, run, 1)
    assert [(type(module), sorted(vars(module)), list(module._forward_pre_hooks)) for module in model.modules()] == before


def test_a_record_survives_json() -> None:
    import json

    model, run = made("home-made")
    with eureka.AttentionProbe(model, every=1) as probe:
        trained(model, run, 1)
    probe.records[0].sites[0].values["spread"][0] = math.nan
    text = json.dumps(probe.records[0].to_json(), allow_nan=False)
    assert json.loads(text)["sites"][0]["values"]["spread"][0] is None
    assert probe.records[0].sites[0].mean("spread") == pytest.approx(probe.records[0].sites[0].values["spread"][1])


def test_two_probes_of_a_model_compiled_in_place_give_its_compiled_call_back_when_the_last_is_gone() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    model.compile(backend="eager")
    compiled, x = model._compiled_call_impl, torch.randn(4, 6, 8)
    first, second = eureka.AttentionProbe(model), eureka.AttentionProbe(model)
    twin = copy.deepcopy(model)
    first.close()
    with second.look():
        model(x)
    assert second.records[0].sites[0].values["spread"]
    assert pickle.loads(pickle.dumps(model))(x).shape == x.shape
    second.close()
    assert model._compiled_call_impl is compiled
    with eureka.AttentionProbe(twin):  # a copy is not compiled, as without probes
        pass
    assert twin._compiled_call_impl is None
