from __future__ import annotations

import copy
import gc
import io
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import eureka
from eureka.attention.norm_softmax import NormSoftmax
from eureka.attention.operator import Operator
from eureka.config import run_config
from eureka.errors import RequestError, UnknownNameError
from eureka.experiment import build
from eureka.patching.patch import unpatch

E, H = 12, 2


class Home(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(E, 3 * E)
        self.num_heads, self.head_dim = H, E // H

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, H, E // H)).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def own() -> Any:
    config = run_config(task={"name": "tiles"}, model={"name": "encoder"}, attention={"name": "softmax"}, training={})
    return build(config)[1].blocks


class InTurn(nn.Module):
    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def hugging_face() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=E, num_hidden_layers=2, num_attention_heads=H, intermediate_size=16, image_size=4, patch_size=2
    )
    return transformers.ViTModel(config, add_pooling_layer=False)


MAKE: dict[str, Any] = {
    "operator": lambda: (InTurn(own()), torch.randn(2, 17, 64)),
    "multihead": lambda: (
        InTurn(nn.ModuleList(nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True) for _ in range(2))),
        torch.randn(2, 6, E),
    ),
    "call": lambda: (nn.Sequential(Home(), Home()), torch.randn(2, 6, E)),
    "hugging_face": lambda: (hugging_face(), torch.randn(2, 3, 4, 4)),
}


def outputs(model: nn.Module, x: Tensor) -> Tensor:
    found = model(x)
    return found if isinstance(found, Tensor) else found.last_hidden_state


@pytest.fixture(params=list(MAKE))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model_and_input(kind: str) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x = MAKE[kind]()
    with torch.no_grad():  # wide enough apart for every operator to differ
        for parameter in model.parameters():
            parameter.mul_(2.0)
    return model, x


def fingerprint(model: nn.Module) -> list[Any]:
    """Everything about a model that a patch could have left behind."""
    described = []
    for name, module in model.named_modules():
        own = {key: value for key, value in vars(module).items() if isinstance(value, (int, str, bool, float))}
        described.append((name, type(module), sorted(vars(module)), own, list(module._modules), list(module._forward_pre_hooks)))
    return described


def test_undo_restores_everything_bit_for_bit(kind: str, model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    before, keys, marks = outputs(model, x), list(model.state_dict()), fingerprint(model)
    patched = eureka.patch(model, NormSoftmax(statistic="var"))
    assert {site.kind for site in patched.sites} == {kind}
    assert len(patched.sites) == 2
    assert not torch.allclose(outputs(model, x), before)
    assert list(model.state_dict()) == keys
    patched.undo()
    patched.undo()
    assert torch.equal(outputs(model, x), before)
    assert list(model.state_dict()) == keys
    assert fingerprint(model) == marks


def test_an_error_inside_the_block_undoes_the_patch(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, _ = model_and_input
    marks = fingerprint(model)
    with pytest.raises(KeyError), eureka.patch(model, "norm_softmax"):
        raise KeyError("of the user")
    assert fingerprint(model) == marks


def test_a_patch_whose_handle_is_dropped_stays_in_force(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    plain = outputs(model, x)
    with eureka.patch(model, "norm_softmax"):
        hot = outputs(model, x)
    eureka.patch(model, "norm_softmax")
    gc.collect()
    assert torch.equal(outputs(model, x), hot)
    assert unpatch(model) == 2
    assert torch.equal(outputs(model, x), plain)


def test_a_patch_on_a_patch_is_in_force_until_it_is_undone(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    plain = outputs(model, x)
    with eureka.patch(model, "norm_softmax"):
        first = outputs(model, x)
        with eureka.patch(model, "linear", layers=1) as inner:
            assert len(inner.sites) == 1
            assert not torch.allclose(outputs(model, x), first)
        assert torch.equal(outputs(model, x), first)
    assert torch.equal(outputs(model, x), plain)


def test_patches_may_be_undone_in_any_order(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    plain, marks = outputs(model, x), fingerprint(model)
    with eureka.patch(model, "linear"):
        second_alone = outputs(model, x)
    first = eureka.patch(model, "norm_softmax")
    second = eureka.patch(model, "linear")
    first.undo()
    assert torch.equal(outputs(model, x), second_alone)
    assert not torch.allclose(second_alone, plain)
    second.undo()
    assert torch.equal(outputs(model, x), plain)
    assert fingerprint(model) == marks


def test_a_deep_copy_is_patched_and_lives_its_own_life(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    plain, marks = outputs(model, x), fingerprint(model)
    with eureka.patch(model, "learnable_temperature", settings={"temperature": 0.4}) as patched:
        hot = outputs(model, x)
        twin = copy.deepcopy(model)
        assert torch.equal(outputs(twin, x), hot)
        with torch.no_grad():
            for parameter in patched.parameters():
                parameter.add_(1.0)
        assert torch.equal(outputs(twin, x), hot)
        assert not torch.allclose(outputs(model, x), hot)
    assert torch.equal(outputs(twin, x), hot)
    assert unpatch(twin) == 2
    assert torch.equal(outputs(twin, x), plain)
    assert fingerprint(twin) == marks


def test_a_patched_model_can_be_pickled(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    with eureka.patch(model, "norm_softmax"):
        hot = outputs(model, x)
        text = pickle.dumps(model)
        file = io.BytesIO()
        torch.save(model, file)
    file.seek(0)
    for twin in (pickle.loads(text), torch.load(file, weights_only=False)):
        assert torch.equal(outputs(twin, x), hot)
        assert unpatch(twin) == 2
        assert torch.equal(outputs(twin, x), outputs(model, x))


def test_another_process_can_load_a_patched_model(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = MAKE["hugging_face"]()
    layer = nn.TransformerEncoderLayer(E, H, 16, dropout=0.0, batch_first=True).eval()
    y = torch.randn(2, 6, E)
    with eureka.patch(model, "norm_softmax"), eureka.patch(layer, "norm_softmax"), torch.no_grad():
        torch.save((model, x, outputs(model, x), layer, y, layer(y)), tmp_path / "model.pt")
    code = (
        "import sys, torch\n"
        "model, x, wanted, layer, y, other = torch.load(sys.argv[1], weights_only=False)\n"
        "with torch.no_grad():\n"
        "    print(torch.equal(model(x).last_hidden_state, wanted), torch.equal(layer(y), other))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "model.pt")], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["True", "True"], done.stderr


def test_the_handle_itself_is_not_copied(model_and_input: tuple[nn.Module, Tensor]) -> None:
    with eureka.patch(model_and_input[0], "softmax") as patched, pytest.raises(RequestError, match="copy the model"):
        copy.deepcopy(patched)


def test_learned_operators_reach_optimisers_and_checkpoints(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    keys, count = set(model.state_dict()), len(list(model.parameters()))
    with eureka.patch(model, "learnable_temperature") as patched:
        assert len(list(model.parameters())) == count + 2
        optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
        before = [parameter.clone() for parameter in patched.parameters()]
        # One feature: a last layer norm fixes the sum of squares of all, and leaves a gradient of rounding alone.
        outputs(model, x)[..., 0].square().sum().backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        assert all(not torch.equal(old, new) for old, new in zip(before, patched.parameters(), strict=True))
        assert len(set(model.state_dict()) - keys) == 2
    assert set(model.state_dict()) == keys


def test_operators_follow_the_model_to_another_type(model_and_input: tuple[nn.Module, Tensor]) -> None:
    model, x = model_and_input
    with eureka.patch(model, "learnable_temperature") as lower:
        with eureka.patch(model, "softmax"):
            model.double()
            outputs(model, x.double())
        assert all(parameter.dtype == torch.double for parameter in lower.parameters())
        outputs(model, x.double())


@pytest.mark.parametrize(
    ("layers", "wanted"),
    [
        (0, [0]),
        (-1, [1]),
        ([0, 1], [0, 1]),
        ("*1*", [1]),
        (lambda site: site.index == 0, [0]),
        (["*0*", -1], [0, 1]),
        (None, [0, 1]),
    ],
)
def test_layers_are_chosen_by_index_pattern_or_predicate(layers: Any, wanted: list[int]) -> None:
    model, _ = MAKE["call"]()
    with eureka.patch(model, "norm_softmax", layers) as patched:
        assert [site.index for site in patched.sites] == wanted
        assert [isinstance(layer._modules.get("eureka_operator"), NormSoftmax) for layer in model] == [
            i in wanted for i in range(2)
        ]


@pytest.mark.parametrize("layers", [2, -3, "blocks.*", lambda site: False])
def test_layers_that_match_nothing_are_an_error_that_names_the_sites(layers: Any) -> None:
    model, _ = MAKE["call"]()
    with pytest.raises(RequestError, match=r"matches none of the 2 sites \(0 0, 1 1\)"):
        eureka.patch(model, "norm_softmax", layers)


@pytest.mark.parametrize("layers", [[], [None], True, 1.5])
def test_layers_that_make_no_sense_are_refused(layers: Any) -> None:
    with pytest.raises((RequestError, TypeError)):
        eureka.patch(MAKE["call"]()[0], "norm_softmax", layers)


def test_each_layer_may_have_its_own_operator() -> None:
    model, x = MAKE["call"]()
    with eureka.patch(model, {"0": "linear", -1: NormSoftmax()}) as patched:
        assert [type(site.operator).__name__ for site in patched.sites] == ["Linear", "NormSoftmax"]
        model(x)
    with eureka.patch(model, lambda site: "linear" if site.index else "softmax") as patched:
        assert [type(site.operator).__name__ for site in patched.sites] == ["Softmax", "Linear"]
    with pytest.raises(RequestError, match="two operators are given for 1"):
        eureka.patch(model, {"*": "linear", 1: "softmax"})
    with pytest.raises(RequestError, match="names its own layers"):
        eureka.patch(model, {"*": "linear"}, layers=1)


def test_an_operator_is_copied_for_every_site() -> None:
    mine = eureka.make_operator("learnable_temperature", heads=H, head_dim=E // H)
    model, _ = MAKE["call"]()
    with eureka.patch(model, mine) as patched:
        placed: list[Operator | None] = [site.operator for site in patched.sites]
        assert placed[0] is not placed[1]
        assert mine not in placed


def test_wrong_requests_are_told_in_one_sentence_and_change_nothing() -> None:
    model, _ = MAKE["call"]()
    marks = fingerprint(model)
    with pytest.raises(UnknownNameError, match="did you mean 'norm_softmax'"):
        eureka.patch(model, "norm_softmaks")
    with pytest.raises(UnknownNameError, match="statistik"):
        eureka.patch(model, "norm_softmax", settings={"statistik": "var"})
    with pytest.raises(RequestError, match="has its own"):
        eureka.patch(model, NormSoftmax(), settings={"statistic": "var"})
    with pytest.raises(
        RequestError, match=r"^fix 'heat_treatment' needs total_steps, which is not known here; give total_steps=….$"
    ):
        eureka.patch(model, "heat_treatment")
    with pytest.raises(RequestError, match="an operator or the name of one is expected, not 3"):
        eureka.patch(model, 3)  # type: ignore[arg-type]
    assert fingerprint(model) == marks


def test_a_forward_that_somebody_put_on_the_instance_is_refused() -> None:
    model, _ = MAKE["call"]()
    model[1].forward = model[1].forward
    marks = fingerprint(model)
    with pytest.raises(RequestError, match="1 has a forward of its own on the instance"):
        eureka.patch(model, "softmax")
    assert fingerprint(model) == marks


def test_a_scripted_module_is_refused() -> None:
    class Tiny(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(q, q, q)

    with pytest.warns(DeprecationWarning, match=r"torch\.jit\.trace"):
        scripted = torch.jit.trace(Tiny(), torch.randn(1, 1, 3, 4))  # type: ignore[no-untyped-call]
    with pytest.raises(RequestError, match=r"1 of Sequential attends in code compiled by torch\.jit"):
        eureka.patch(nn.Sequential(Home(), scripted), "softmax")


def test_threads_that_patch_and_undo_one_model_at_once_leave_it_as_it_was() -> None:
    """On the code before, two of eight such rounds raised KeyError and three left the model broken."""
    model, x = nn.Sequential(*(Home() for _ in range(6))), torch.randn(2, 5, E)
    wanted, failed = model(x), list[BaseException]()
    start = threading.Barrier(4)

    def work(fix: str) -> None:
        try:
            start.wait(10)
            for _ in range(60):
                eureka.patch(model, fix).undo()
        except BaseException as error:
            failed.append(error)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(fix,)) for fix in ("softmax", "norm_softmax", "temperature", "ssmax")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not failed
    assert all(type(layer) is Home and not layer._modules.keys() - {"qkv"} for layer in model)
    assert torch.equal(model(x), wanted)
