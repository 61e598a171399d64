"""Position share: the formulas against slow twins and planted answers, and a model that is left as it was."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import eureka
from eureka.attention.mask import Bias, Causal, Dense, KeyPadding, Mask, NoMask
from eureka.attention.operator import Operator, SoftmaxFamily, make_operator
from eureka.attention.variance import BLOCK
from eureka.errors import RequestError
from eureka.patching.attach import AttentionCall
from eureka.probes.logits_share import logits_share
from eureka.runs import PositionShare, ProbeRecord, RunFolder

B, H, N, D = 5, 2, 7, 4


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def tail_hidden(lengths: list[int], keys: int = N) -> Tensor:
    return torch.arange(keys) < torch.tensor(lengths)[:, None]


def padded_bias(spread: float = 1.0) -> Tensor:
    """The same for every sample, but for the keys that it hides."""
    bias = spread * normal(1, H, N, N, seed=5).expand(B, -1, -1, -1)
    return torch.where(tail_hidden([7, 5, 4, 2, 6])[:, None, None], bias, -math.inf)


MASKS: dict[str, Mask] = {
    "none": NoMask(),
    "causal": Causal(),
    "causal, later": Causal(2),
    "padding": KeyPadding(tail_hidden([7, 5, 4, 2, 6])),
    "padding, one for all": KeyPadding(tail_hidden([5])),
    "dense": Dense(normal(B, 1, N, N, seed=4) > -0.3),
    "causal and padding": Dense(torch.ones(N, N, dtype=torch.bool).tril() & tail_hidden([7, 5, 4, 2, 6])[:, None, None]),
    "bias": Bias(normal(1, H, N, N, seed=5)),
    "bias and padding": Bias(padded_bias()),
    "bias from data": Bias(normal(B, 1, N, N, seed=6)),
}


# The slow twin: numbers and loops, in double precision.


def seen_by(mask: Mask, b: int, h: int, i: int, j: int) -> bool:
    if isinstance(mask, NoMask):
        return True
    if isinstance(mask, Causal):
        return j <= i + mask.offset
    if isinstance(mask, KeyPadding):
        return bool(mask.visible[b % len(mask.visible), j])
    whole = mask.visible if isinstance(mask, Dense) else mask.bias > -math.inf
    return bool(whole[b % whole.shape[0], h % whole.shape[1], i, j])


def bias_at(mask: Mask, b: int, h: int, i: int, j: int) -> float:
    if not isinstance(mask, Bias):
        return 0.0
    return float(mask.bias[b % mask.bias.shape[0], h % mask.bias.shape[1], i, j])


def slow_share(call: AttentionCall, h: int) -> float:
    q, k = call.q.double(), call.k.double()
    beta: float | Tensor = q.shape[-1] ** -0.5
    if isinstance(call.operator, SoftmaxFamily):
        q, k = call.operator.prepare(q, k)
        beta = call.operator.beta(q, k, call.mask)
    factor = torch.as_tensor(beta, dtype=torch.float64).expand(*q.shape[:3], 1)
    samples, keys, group = range(len(q)), range(k.shape[2]), h * k.shape[1] // q.shape[1]
    held = [
        [any(seen_by(call.mask, b, g, i, j) for g in range(q.shape[1]) for i in range(q.shape[2])) for j in keys] for b in samples
    ]
    shared = whole = 0.0
    for b in samples:
        for i in range(q.shape[2]):
            own, position = [], []
            for j in keys:
                others = [c for c in samples if c != b and held[c][j]]
                if not others or not seen_by(call.mask, b, h, i, j):
                    continue
                mean = sum(k[c, group, j] for c in others) / len(others)
                there = [bias_at(call.mask, c, h, i, j) for c in samples if c != b and seen_by(call.mask, c, h, i, j)]
                same = not isinstance(call.mask, Bias) or len(call.mask.bias) == 1
                bias = bias_at(call.mask, b, h, i, j)
                own.append(float(q[b, h, i] @ k[b, group, j] + bias / factor[b, h, i]))
                usual = bias if same else sum(there) / max(1, len(there))
                position.append(float(q[b, h, i] @ mean + usual / factor[b, h, i]))
            if len(own) >= 2:
                x, y = torch.tensor(own, dtype=torch.float64), torch.tensor(position, dtype=torch.float64)
                shared += float(((x - x.mean()) * (y - y.mean())).mean())
                whole += float((x - x.mean()).square().mean())
    return shared / whole


def call_of(q: Tensor, k: Tensor, mask: Mask, operator: Operator | None = None) -> AttentionCall:
    return AttentionCall(q, k, normal(*k.shape, seed=9), mask, operator)


@pytest.mark.parametrize("fix", [None, "norm_softmax", "qk_norm", "sigmoid"])
@pytest.mark.parametrize("mask", MASKS)
def test_the_share_of_the_logits_is_that_of_the_slow_twin(mask: str, fix: str | None) -> None:
    operator = make_operator(fix, heads=H, head_dim=D) if fix else None
    call = call_of(normal(B, H, N, D), normal(B, H, N, D, seed=1) + normal(1, H, N, D, seed=2) + 3, MASKS[mask], operator)
    with torch.no_grad():
        assert logits_share(call) == pytest.approx([slow_share(call, h) for h in range(H)], rel=1e-4, abs=1e-5)


def test_grouped_heads_cross_attention_and_few_samples_are_those_of_the_slow_twin() -> None:
    for batch, heads in ((2, 1), (3, 2)):
        call = call_of(normal(batch, 4, 3, D), normal(batch, heads, N, D, seed=1) + normal(1, heads, N, D, seed=2), NoMask())
        assert logits_share(call) == pytest.approx([slow_share(call, h) for h in range(4)], rel=1e-4, abs=1e-5)


def test_blocks_of_rows_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = normal(4, 2, 20, 3), normal(4, 2, 9, 3, seed=1)
    masks: list[Mask] = [NoMask(), Causal(3), Bias(normal(4, 1, 20, 9, seed=2))]
    whole = [logits_share(call_of(q, k, mask)) for mask in masks]
    monkeypatch.setattr("eureka.attention.variance.BLOCK", 4 * 2 * 9 * 3)  # three rows
    assert BLOCK > 4 * 2 * 20 * 9
    for shares, mask in zip(whole, masks, strict=True):
        assert logits_share(call_of(q, k, mask)) == pytest.approx(shares, rel=1e-4)


@pytest.mark.parametrize("mask", [name for name in MASKS if name != "bias from data"])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_keys_that_are_the_same_in_every_sample_have_a_share_of_one(mask: str, kind: torch.dtype) -> None:
    k = normal(1, H, N, D, seed=1).expand(B, -1, -1, -1)
    call = call_of(normal(B, H, N, D).to(kind), k.to(kind), MASKS[mask])
    assert logits_share(call) == pytest.approx([1.0, 1.0], rel=1e-4)


def planted(batch: int, position: float, content: float, seed: int) -> AttentionCall:
    keys = position * normal(1, 1, 40, 16, seed=7) + content * normal(batch, 1, 40, 16, seed=seed)
    return call_of(normal(batch, 1, 40, 16, seed=seed + 1), keys, NoMask())


@pytest.mark.parametrize(("position", "content", "share"), [(0.0, 1.0, 0.0), (1.0, 2.0, 0.2), (2.0, 1.0, 0.8)])
def test_a_planted_share_is_found_and_two_samples_have_no_bias(position: float, content: float, share: float) -> None:
    assert logits_share(planted(200, position, content, 10)) == pytest.approx([share], abs=0.03)
    pairs = [logits_share(planted(2, position, content, seed))[0] for seed in range(10, 410, 2)]
    assert sum(pairs) / len(pairs) == pytest.approx(
        share, abs=0.03
    )  # with the sample itself in the mean, content would have half


def test_a_query_that_asks_by_its_content_for_a_place_counts_as_position() -> None:
    """Each sample looks for another place, so no logit is the same in all samples."""
    places = torch.eye(16)[None, None]
    wanted = torch.eye(16)[torch.randint(16, (400,), generator=torch.Generator().manual_seed(0))][:, None, None]
    keys = places + 0.01 * normal(400, 1, 16, 16)
    assert logits_share(call_of(wanted, keys, NoMask())) == pytest.approx([1.0], abs=0.02)
    logits = (wanted @ keys.transpose(-2, -1)).squeeze()
    same = logits.mean(dim=0).var(correction=0) / logits.var(dim=1, correction=0).mean()
    assert same < 0.05


def test_one_sample_or_samples_that_are_alike_have_no_share() -> None:
    call = call_of(normal(1, H, N, D), normal(1, H, N, D, seed=1), NoMask())
    assert call.v is not None
    q, k, v = (x.repeat(2, 1, 1, 1) for x in (call.q, call.k, call.v))
    twice = AttentionCall(q, k, v, NoMask(), None)
    for one in (call, twice):
        assert all(math.isnan(share) for share in logits_share(one))
    equal_keys = call_of(normal(B, H, N, D), torch.ones(B, H, N, D), NoMask())
    assert all(math.isnan(share) for share in logits_share(equal_keys))


def test_only_the_first_samples_count() -> None:
    q, k = normal(B, H, N, D), normal(B, H, N, D, seed=1)
    mask = KeyPadding(tail_hidden([7, 5, 4, 2, 6]))
    short = logits_share(call_of(q[:3], k[:3], KeyPadding(mask.visible[:3])))
    assert logits_share(call_of(q, k, mask), samples=3) == pytest.approx(short)


# Models.


class Attention(nn.Module):
    def __init__(self, alibi: bool = False) -> None:
        super().__init__()
        self.qkv, self.alibi = nn.Linear(16, 48), alibi

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        places = torch.arange(x.shape[1], dtype=x.dtype)
        bias = -10 * (places - places[:, None]).abs() if self.alibi else None
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2)


class Model(nn.Module):
    """Learned positions, and more as asked: sinusoids, nothing, zeros, a checkpoint, tensors that cannot be followed."""

    def __init__(self, **asked: bool) -> None:
        super().__init__()
        self.asked = asked
        self.embed = nn.Linear(5, 16)
        self.places = nn.Parameter(torch.zeros(N, 16) if asked.get("zero") else 0.3 * normal(N, 16))
        self.register_buffer("waves", torch.sin(torch.outer(torch.arange(N), torch.arange(1.0, 17))))
        self.layers = nn.ModuleList(Attention(asked.get("alibi", False)) for _ in range(2))
        self.drop = nn.Dropout(0.3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        if self.asked.get("nested"):
            nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)])
            nested + nested
        if not self.asked.get("alibi"):
            x = x + self.places
        if self.asked.get("waves"):
            x = x + self.get_buffer("waves")
        x = self.drop(x)
        for layer in self.layers:
            x = x + (checkpoint(layer, x, use_reentrant=True) if self.asked.get("reentrant") else layer(x))
        return x


def made(**asked: bool) -> tuple[Model, Tensor]:
    torch.manual_seed(0)
    return Model(**asked), normal(B, N, 5)


def rms(x: Tensor) -> float:
    return math.sqrt(sum(value * value for value in x.double().flatten().tolist()) / x.numel())


@torch.no_grad()
def test_the_share_of_the_input_is_that_of_the_parts_it_is_made_of() -> None:
    model, x = made()
    share = eureka.position_share(model, x)
    position, content = rms(model.places), rms(model.embed(x))
    assert (share.site, share.parameters, share.note) == ("layers.0", ["places"], None)
    assert [share.position, share.content] == pytest.approx([position, content])
    assert share.ratio == pytest.approx(position / content)
    assert share.of_input == pytest.approx(position**2 / (position**2 + content**2))


@torch.no_grad()
def test_positions_that_are_fixed_count_and_two_kinds_count_together() -> None:
    model, x = made(waves=True)
    share = eureka.position_share(model, x)
    assert share.parameters == ["places", "waves"]
    assert share.position == pytest.approx(rms(model.places + model.get_buffer("waves")))
    assert share.content == pytest.approx(rms(model.embed(x)), rel=1e-5)


class EncoderDecoder(nn.Module):
    """Embeds what both sides read before the encoder attends, as most code around `nn.Transformer` does."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(5, 16)
        self.source_places, self.target_places = nn.Parameter(0.3 * normal(N, 16)), nn.Parameter(normal(N, 16, seed=1))
        self.transformer = nn.Transformer(16, 2, 1, 1, 32, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source, target = self.embed(source) + self.source_places, self.embed(target) + self.target_places[: target.shape[1]]
        return self.transformer(source, target)  # type: ignore[no-any-return]


@pytest.mark.parametrize("length", [N, 4])
@torch.no_grad()
def test_positions_of_a_decoder_that_embeds_first_are_not_those_of_the_first_attention(length: int) -> None:
    model, source = EncoderDecoder(), normal(B, N, 5)
    share = eureka.position_share(model, {"source": source, "target": normal(B, length, 5, seed=1)})
    assert (share.site, share.parameters) == ("transformer.encoder.layers.0.self_attn", ["source_places"])
    assert [share.position, share.content] == pytest.approx([rms(model.source_places), rms(model.embed(source))], rel=1e-5)


class SideBySide(Model):
    """States and actions of one time, as a Decision Transformer interleaves them."""

    def forward(self, x: Tensor) -> Tensor:
        x = torch.stack([self.embed(x) + self.places, self.embed(2 * x) + self.places], dim=2).flatten(1, 2)
        return self.layers[0](x)  # type: ignore[no-any-return]


@torch.no_grad()
def test_positions_that_are_added_side_by_side_have_one_ratio_over_all_places() -> None:
    model, x = SideBySide(), normal(B, N, 5)
    content = rms(torch.cat([model.embed(x), model.embed(2 * x)]))
    share = eureka.position_share(model, x)
    assert [share.position, share.content] == pytest.approx([rms(model.places), content], rel=1e-5)
    eureka.clear_start(model, x, logits=None)
    assert eureka.position_share(model, x).ratio == pytest.approx(1.0, rel=0.01)


@torch.no_grad()
def test_the_share_of_the_logits_is_that_of_the_first_attention() -> None:
    model, x = made()
    q, k, v = model.get_submodule("layers.0.qkv")(model.embed(x) + model.places).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
    call = AttentionCall(q, k, v, NoMask(), None)
    assert eureka.position_share(model, x).logits == pytest.approx([slow_share(call, h) for h in range(2)], rel=1e-4)


@torch.no_grad()
def test_on_fresh_weights_the_logits_have_the_share_of_the_input() -> None:
    shares = []
    for seed in range(30):
        torch.manual_seed(seed)
        model = Model()
        nn.init.normal_(model.places, std=0.4)
        shares.append(eureka.position_share(model, normal(64, N, 5, seed=seed)))
    logits, given = (sum(getattr(share, name) for share in shares) / len(shares) for name in ("of_logits", "of_input"))
    assert 0.2 < given < 0.8
    assert logits == pytest.approx(given, abs=0.05)


def test_positions_that_are_all_zero_have_no_part_in_the_input() -> None:
    model, x = made(zero=True)
    share = eureka.position_share(model, x)
    assert (share.parameters, share.position, share.of_input, share.note) == (["places"], 0.0, 0.0, None)


def test_a_bias_on_places_counts_as_position_in_the_logits_and_not_in_the_input() -> None:
    model, x = made(alibi=True)
    share = eureka.position_share(model, x)
    assert share.of_logits == pytest.approx(1.0, abs=0.01)
    assert math.isnan(share.of_input)
    assert share.note == "no learned positions: those of Model are ALiBi and act inside the attention."


def test_rotary_positions_are_named() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.LlamaModel(transformers.LlamaConfig(**sizes, bos_token_id=1, eos_token_id=None))
    ids = torch.randint(3, 40, (B, N), generator=torch.Generator().manual_seed(1))
    share = eureka.position_share(model, {"input_ids": ids})
    assert share.note == "no learned positions: those of LlamaModel are rotary and act inside the attention."
    assert all(math.isfinite(each) for each in share.logits)


def test_bfloat16_says_nearly_the_same() -> None:
    model, x = made()
    exact, rough = eureka.position_share(model, x), eureka.position_share(model.bfloat16(), x.bfloat16())
    assert rough.ratio == pytest.approx(exact.ratio, rel=0.01)
    assert rough.logits == pytest.approx(exact.logits, abs=0.03)


def test_a_batch_that_cannot_tell_is_refused() -> None:
    model, x = made()
    for batch in (x[:1], x[:1].expand(3, -1, -1)):
        with pytest.raises(RequestError, match="the batch has no two samples that differ"):
            eureka.position_share(model, batch)
    with pytest.raises(RequestError, match="no attention found in Linear"):
        eureka.position_share(nn.Linear(5, 5), x)


class Capped(Attention):
    """A function between q·k and its softmax."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        return ((q @ k.transpose(-2, -1)).tanh().softmax(-1) @ v).transpose(1, 2).flatten(2)  # type: ignore[no-any-return]


def test_an_attention_that_cannot_be_followed_is_among_the_reasons_why_none_was_seen() -> None:
    with pytest.raises(RequestError, match="was not reached, its code attends in a way that could not be followed, or"):
        eureka.position_share(Capped(), normal(B, N, 16))


# The model and its training stay as they are.


def hooks(model: nn.Module) -> list[int]:
    return [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._forward_hooks_always_called) for m in model.modules()]


def test_nothing_of_the_model_or_the_random_state_changes() -> None:
    model, x = made()
    model.layers[1].eval()
    before = copy.deepcopy(model.state_dict()), [m.training for m in model.modules()], torch.get_rng_state(), hooks(model)
    eureka.position_share(model, x)
    after = model.state_dict(), [m.training for m in model.modules()], torch.get_rng_state(), hooks(model)
    assert all(torch.equal(value, before[0][name]) for name, value in after[0].items())
    assert after[1] == before[1]
    assert torch.equal(after[2], before[2])
    assert after[3] == before[3]


def trained(model: nn.Module, x: Tensor, steps: int = 3) -> list[Tensor]:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(1)
    found = []
    for _ in range(steps):
        optimiser.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        found += [loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
        optimiser.step()
    return [*found, torch.get_rng_state()]


@pytest.mark.parametrize("asked", [{}, {"waves": True}, {"reentrant": True}, {"nested": True}])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_training_goes_on_bit_for_bit_with_a_probe_and_every_record_has_a_share(asked: dict[str, bool]) -> None:
    alone = trained(*made(**asked))
    model, x = made(**asked)
    with eureka.AttentionProbe(model, every=2) as probe:
        watched = trained(model, x)
    assert all(torch.equal(one, two) for one, two in zip(alone, watched, strict=True))
    shares = [record.position_share for record in probe.records]
    assert [share.site for share in shares if share] == ["layers.0"] * 2
    assert [share.note is not None for share in shares if share] == [bool(asked.get("nested"))] * 2
    assert hooks(model) == [0] * len(list(model.modules()))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_what_cannot_be_followed_is_said_and_the_logits_are_measured_all_the_same() -> None:
    share = eureka.position_share(*made(nested=True))
    assert share.note == "what the model does before its first attention could not be followed."
    assert share.logits == pytest.approx(eureka.position_share(*made()).logits)


def test_a_part_that_is_called_by_itself_says_what_was_seen() -> None:
    model, x = made()
    whole = nn.ModuleDict({"net": model})
    with eureka.AttentionProbe(whole, every=1) as probe:
        model(x).sum().backward()
        probe.step()
    share = probe.records[0].position_share
    assert share is not None
    assert (share.site, share.parameters) == ("net.layers.0", ["net.places"])
    with eureka.AttentionProbe(model, every=1) as probe:
        model.layers[0](model.embed(x) + model.places).sum().backward()
        probe.step()
    share = probe.records[0].position_share
    assert share is not None
    assert share.note is not None
    assert share.note.endswith("(only what happened inside its Attention was seen).")


def test_a_validation_before_the_step_is_not_watched() -> None:
    model, x = made()
    model.eval()
    expected = eureka.position_share(model, x)
    with eureka.AttentionProbe(model, every=1) as probe:
        with torch.no_grad():
            model(100 * x.flip(0, 1))
        model(x).sum().backward()
        probe.step()
    assert probe.records[0].position_share == expected


def test_a_probe_of_some_layers_says_nothing_about_the_first() -> None:
    model, x = made()
    with eureka.AttentionProbe(model, layers=1) as probe, probe.look():
        model(x)
    assert probe.records[0].position_share is None


def test_a_pass_that_fails_leaves_nothing_behind() -> None:
    model, x = made()
    with eureka.AttentionProbe(model) as probe:
        with pytest.raises(RuntimeError):
            model(x[..., :2])
        with probe.look():
            model(x)
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    assert probe.records[0].position_share is not None


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_model_can_be_copied_while_it_is_probed(copied: Callable[[Any], Any]) -> None:
    model, x = made()
    with eureka.AttentionProbe(model) as probe:
        twin = copied(model)
        with torch.no_grad():
            assert torch.equal(twin.eval()(x), model.eval()(x))
        with probe.look():
            twin(x)
            model(x)
    assert probe.records[0].position_share is not None


# Records.


def test_loggers_get_both_shares_and_not_what_was_not_measured() -> None:
    share = PositionShare(site="a", position=1.0, content=2.0, logits=[0.25, math.nan, 0.75])
    assert ProbeRecord(0, [], share).scalars() == {
        "attention/position_share_of_input": pytest.approx(0.2),
        "attention/position_share_of_logits": 0.5,
    }
    assert ProbeRecord(0, [], PositionShare(site="a", logits=[math.nan])).scalars() == {}


def test_a_record_survives_a_file_and_older_files_are_read(tmp_path: Path) -> None:
    share = PositionShare(site="a", parameters=["p"], position=1.0, content=2.0, logits=[0.5], note="n")
    lines = [ProbeRecord(0, [], share).to_json(), {"step": 1, "sites": []}, ProbeRecord(2, [], PositionShare(site="b")).to_json()]
    (tmp_path / "attention.jsonl").write_text("".join(json.dumps(line, allow_nan=False) + "\n" for line in lines))
    first, old, bare = RunFolder(tmp_path).attention()
    assert (first.position_share, old.position_share) == (share, None)
    assert bare.position_share is not None
    assert math.isnan(bare.position_share.ratio)


def test_a_share_reads_as_a_sentence() -> None:
    share = PositionShare(site="blocks.0", position=0.02, content=0.1, logits=[0.25, 0.5])
    assert str(share).replace("\N{NO-BREAK SPACE}", " ") == (
        "blocks.0: positions are 3.8 % of the input (root mean square 0.02 beside 0.1, ratio 0.2) and 37.5 % of the variance in a"
        " row of logits (25 %, 50 % by head)"
    )
    assert str(PositionShare(site="a", logits=[math.nan], note="why.")) == "a: positions are not measured; why."
