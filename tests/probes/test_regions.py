from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import eureka
from eureka.errors import RequestError
from eureka.probes.regions import attention_to

E, H, B, N = 8, 2, 5, 6


def make(batch_first: bool = True) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(E, H, 8, dropout=0.0, batch_first=batch_first), 2, enable_nested_tensor=False
    ).double()


def weights_of(model: nn.TransformerEncoder, x: Tensor) -> list[Tensor]:
    """The weights that torch.nn itself reports, layer by layer."""
    found = []
    for layer in model.layers:
        found.append(layer.self_attn(x, x, x, average_attn_weights=False)[1])
        x = layer(x)
    return found


def test_the_share_of_a_region_is_the_sum_of_its_weights() -> None:
    model, x = make().eval(), torch.randn(B, N, E, dtype=torch.double)
    found = attention_to(model, {"first": [0, 1], "last": torch.tensor([False] * 5 + [True])}, x, queries=[0, 2])
    with torch.no_grad():
        for record, weights in zip(found, weights_of(model, x), strict=True):
            rows = weights[:, :, [0, 2]]
            assert record.attention["first"] == pytest.approx(rows[..., :2].sum(-1).mean(dim=(0, 2)).tolist())
            assert record.attention["last"] == pytest.approx(rows[..., 5].mean(dim=(0, 2)).tolist())


def test_the_progress_measure_is_the_share_of_the_cells_in_all_attention() -> None:
    model, x = make().eval(), torch.randn(B, N, E, dtype=torch.double)
    cells = torch.eye(N, dtype=torch.bool)
    each = torch.rand(B, N, N) < 0.5
    found = attention_to(model, {"diagonal": cells, "of each": each}, x)
    with torch.no_grad():
        for record, weights in zip(found, weights_of(model, x), strict=True):
            diagonal = weights.diagonal(dim1=-2, dim2=-1).sum(dim=(0, 2)) / weights.sum(dim=(0, 2, 3))
            assert record.attention["diagonal"] == pytest.approx(diagonal.tolist())
            chosen = (weights * each[:, None]).sum(dim=(0, 2, 3)) / weights.sum(dim=(0, 2, 3))
            assert record.attention["of each"] == pytest.approx(chosen.tolist())


@pytest.mark.parametrize("fix", ["norm_softmax", "linear", "sigmoid"])
def test_a_patched_model_shows_the_attention_of_its_operator(fix: str) -> None:
    model, x = make().eval(), torch.randn(B, N, E, dtype=torch.double)
    plain = attention_to(model, {"first": [0]}, x)
    with eureka.patch(model, fix):
        found = attention_to(model, {"first": [0]}, x, layers=0)
        with torch.no_grad():
            weights = model.layers[0].self_attn(x, x, x, average_attn_weights=False)[1]
    assert found[0].attention["first"] == pytest.approx(weights[..., 0].mean(dim=(0, 2)).tolist())
    assert found[0].attention["first"] != pytest.approx(plain[0].attention["first"])


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_gradient_of_a_region_is_that_of_its_tokens(batch_first: bool) -> None:
    model, x = make(batch_first), torch.randn(B, N, E, dtype=torch.double)
    x = x if batch_first else x.transpose(0, 1)
    loss: Callable[[Tensor], Tensor] = lambda output: output.square().sum()  # noqa: E731
    found = attention_to(model, {"first": [0], "rest": range(1, N)}, x, loss=loss)
    x = x.clone().requires_grad_()
    between = model.layers[0](x)
    between.retain_grad()
    loss(model.layers[1](between)).backward()  # type: ignore[no-untyped-call]
    assert x.grad is not None
    gradient = (between.grad if batch_first else between.grad.transpose(0, 1)).abs()
    assert found[1].gradient["first"] == pytest.approx(gradient[:, 0].mean().item())
    assert found[1].gradient["rest"] == pytest.approx(gradient[:, 1:].mean().item())
    assert found[0].gradient["first"] > 0
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_measuring_leaves_no_gradient_and_no_mode_behind() -> None:
    model = make()
    model.layers[1].eval()
    attention_to(model, {"first": [0]}, torch.randn(B, N, E, dtype=torch.double), loss=lambda output: output.sum())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert model.layers[0].training
    assert not model.layers[1].training


def test_wrong_requests_are_refused() -> None:
    model, x = make(), torch.randn(B, N, E, dtype=torch.double)
    with pytest.raises(RequestError, match=r"region 'far' is \[6\], but there are 6 keys"):
        attention_to(model, {"far": [N]}, x)
    with pytest.raises(RequestError, match="name at least one region"):
        attention_to(model, {}, x)
    with pytest.raises(RequestError, match=r"cells of shape \(3, 3\)"):
        attention_to(model, {"cells": torch.eye(3, dtype=torch.bool)}, x)
