"""`attend` stands in for attention that is written out by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from eureka import attend, make_operator
from eureka.errors import RequestError


@pytest.mark.parametrize("heads", [0, 2])
def test_attend_is_the_operator_on_the_same_tensors(heads: int) -> None:
    shape = (3, heads, 5, 8) if heads else (3, 5, 8)
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for _ in range(3))
    four = [one if heads else one.unsqueeze(1) for one in (q, k, v)]
    expected = make_operator("norm_softmax", head_dim=8)(*four)
    found = attend(q, k, v)
    assert found.shape == q.shape
    assert torch.equal(found if heads else found.unsqueeze(1), expected)
    assert all(grad.abs().sum() > 0 for grad in torch.autograd.grad(found.square().sum(), (q, k, v)))


def test_masks_mean_what_they_mean_for_the_fused_function() -> None:
    q, k, v = (torch.randn(2, 2, 6, 4, dtype=torch.float64) for _ in range(3))
    seen = torch.rand(2, 1, 6, 6) > 0.4
    seen[..., 0] = True
    for mask in (seen, torch.randn(2, 1, 6, 6, dtype=torch.float64)):
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert torch.allclose(attend(q, k, v, "softmax", mask=mask), expected)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(attend(q, k, v, "softmax", causal=True), expected)


def test_what_it_cannot_do_is_told() -> None:
    q = torch.randn(1, 3, 4)
    with pytest.raises(RequestError, match="exclude each other"):
        attend(q, q, q, mask=torch.ones(3, 3, dtype=torch.bool), causal=True)
