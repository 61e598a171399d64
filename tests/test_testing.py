"""The contract of operators, tasks and models: ours keep it, and every way to break it has its own sentence."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from eureka.attention.explicit import masked_softmax
from eureka.attention.mask import Mask, NoMask, as_mask
from eureka.attention.operator import ExplicitOperator, Operator
from eureka.attention.registry import FIXES
from eureka.attention.softmax import Softmax
from eureka.errors import ContractError
from eureka.runs import Level
from eureka.tasks.registry import TASKS
from eureka.tasks.task import Batch, Split, Task
from eureka.tasks.tiles import Tiles
from eureka.testing import check_model, check_operator, check_task


@pytest.mark.parametrize(("heads", "head_dim"), [(2, 8), (3, 16)])
@pytest.mark.parametrize("name", FIXES.names())
def test_our_operators_keep_the_contract(name: str, heads: int, head_dim: int) -> None:
    check_operator(FIXES.build(name, heads=heads, head_dim=head_dim, total_steps=100), heads=heads, head_dim=head_dim)


@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize("name", TASKS.names())
def test_our_tasks_keep_the_contract(name: str) -> None:
    check_task(TASKS.build(name))


def test_a_check_leaves_the_operator_and_the_global_generator_alone() -> None:
    operator = FIXES.build("learnable_temperature", heads=2, head_dim=8)
    state = torch.random.get_rng_state()
    check_operator(operator)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert all(parameter.grad is None for parameter in operator.parameters())


class Altered(Softmax):
    """Plain softmax whose result is altered."""

    def __init__(self, alter: Callable[[Tensor, Tensor, Tensor, Tensor], Any]) -> None:
        super().__init__()
        self.alter = alter

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        result: Tensor = self.alter(super().forward(q, k, v, mask, dropout), q, k, v)
        return result


class Unmasked(Softmax):
    """It forgets the mask."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        return super().forward(q, k, v, None, dropout)


class Standardised(ExplicitOperator):
    """Logits divided by the largest of the row, hidden ones included."""

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        logits = q @ k.transpose(-2, -1)
        return masked_softmax(logits / logits.abs().amax(dim=-1, keepdim=True), as_mask(mask))


class Unequal(Softmax):
    """Its weights ignore q."""

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        return super().weights(torch.zeros_like(q), k, mask)


class Transposed(Softmax):
    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        return super().weights(q, k, mask).transpose(-2, -1)


class Own(Operator):
    """It wants as many heads in k as in q."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        assert q.shape[1] == k.shape[1], "heads"
        return Softmax()(q, k, v, mask, dropout)  # type: ignore[no-any-return]

    def weights(self, q: Tensor, k: Tensor, mask: Mask | Tensor | None = None) -> Tensor:
        return Softmax().weights(q, k, mask)


class Unique(Softmax):
    """It cannot be copied."""

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("there is only one")


class Forgetful(Softmax):
    """A copy of it is another operator."""

    scale = 1.0

    def __deepcopy__(self, memo: Any) -> Forgetful:
        made = Forgetful()
        made.scale = self.scale + 1
        return made

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask | Tensor | None = None, dropout: float = 0.0) -> Tensor:
        return self.scale * super().forward(q, k, v, mask, dropout)


def spoiled_gradient(out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return out + 0 * (q - q).abs().sqrt().sum()  # the root has no finite slope at 0


COUNT = itertools.count()
BROKEN: dict[str, tuple[Any, str]] = {
    "no operator": (nn.Identity(), r"an operator is a subclass of eureka\.Operator, not a Identity\."),
    "no copy": (Unique(), r"Unique cannot be copied, and every layer gets a copy: TypeError: there is only one\."),
    "no call": (
        Altered(lambda out, q, k, v: 1 / 0),
        r"Altered cannot be called: ZeroDivisionError: division by zero \(mask: NoMask\)\.",
    ),
    "no tensor": (Altered(lambda out, q, k, v: None), r"gives a NoneType, not a tensor"),
    "shape": (
        Altered(lambda out, q, k, v: out.transpose(1, 2)),
        r"gives a result of shape \(2, 5, 2, 8\), not \(B, H, Q, D\) = \(2, 2, 5, 8\)",
    ),
    "dtype": (Altered(lambda out, q, k, v: out.double()), r"turns torch\.float32 into torch\.float64"),
    "not finite": (Altered(lambda out, q, k, v: out / 0), r"gives a result that is not finite"),
    "in place": (Altered(lambda out, q, k, v: (out, k.mul_(2))[0]), r"changes its inputs in place"),
    "not the same again": (
        Altered(lambda out, q, k, v: out + next(COUNT)),
        r"gives another result when it is called again with the same inputs",
    ),
    "another after a copy": (Forgetful(), r"gives another result after it was copied"),
    "no gradient": (Altered(lambda out, q, k, v: out.detach()), r"cuts the gradient: nothing reaches q, k or v"),
    "no gradient of k": (Altered(lambda out, q, k, v: Softmax()(q, k.detach(), v)), r"lets no gradient reach k"),
    "gradient not finite": (Altered(spoiled_gradient), r"gives q a gradient that is not finite"),
    "leaks values": (
        Unmasked(),
        r"leaks: the value of a hidden token changes the result of a query that must not see it \(mask: Causal\)",
    ),
    "leaks keys": (
        Standardised(),
        r"leaks: the key of a hidden token changes the result of a query that must not see it \(mask: Causal\)",
    ),
    "mixes samples": (
        Altered(lambda out, q, k, v: out - out.mean(0, keepdim=True)),
        r"mixes samples: the result of one depends on the others in its batch",
    ),
    "weights of another shape": (Transposed(), r"has weights of shape \(2, 2, 7, 5\), not \(B, H, Q, K\) = \(2, 2, 5, 7\)"),
    "other weights": (Unequal(), r"has weights that do not give its result: weights\(q, k, mask\) @ v is something else"),
    "no shared keys": (Own(), r"Own cannot be called: AssertionError: heads"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_operator_is_told_what_it_does_wrong(what: str) -> None:
    operator, sentence = BROKEN[what]
    with pytest.raises(ContractError, match=sentence):
        check_operator(operator)


def test_every_sentence_about_an_operator_is_a_different_one() -> None:
    said = []
    for operator, _ in BROKEN.values():
        with pytest.raises(ContractError) as caught:
            check_operator(operator)
        said.append(re.sub(r" \(mask: \w+\)|^\w+ ", "", str(caught.value)))
    assert len(set(said)) == len(BROKEN)


Change = Callable[[Tensor], Tensor]


class AlteredTask(Tiles):
    """The tiles, altered."""

    def __init__(self, alter: Callable[[Batch, Generator], Any] = lambda batch, generator: batch, **attributes: Any) -> None:
        super().__init__()
        self.alter = alter
        self.__dict__ |= attributes

    def sample(self, n: int, generator: Generator, split: Split = "train") -> Batch:
        changed: Batch = self.alter(super().sample(n, generator, split), generator)
        return changed


class Levelled(Tiles):
    def __init__(self, *levels: Level) -> None:
        super().__init__()
        self.given = list(levels)

    def levels(self, label_smoothing: float = 0.0) -> list[Level]:
        return self.given


class Scored(Tiles):
    """Loss and accuracy are altered."""

    def __init__(
        self, loss: Callable[[Tensor], Tensor] | None = None, accuracy: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__()
        self.of_loss, self.of_accuracy = loss or (lambda x: x), accuracy or (lambda x: x)

    def loss(self, outputs: Tensor, batch: Batch, label_smoothing: float = 0.0) -> Tensor:
        return self.of_loss(super().loss(outputs, batch, label_smoothing))

    def accuracy(self, outputs: Tensor, batch: Batch) -> Tensor:
        return self.of_accuracy(super().accuracy(outputs, batch))


def failing(batch: Batch, generator: Generator) -> Batch:
    raise KeyError("prototypes")


FIXED = Tiles().sample(8, Generator().manual_seed(3))
GOOD, BAD = Level("all", 0.0, 1.0), Level("some", 1.0, 0.5)
BROKEN_TASKS: dict[str, tuple[Any, str]] = {
    "no task": (Softmax(), r"a task is a subclass of eureka\.tasks\.task\.Task, not a Softmax\."),
    "no classes": (AlteredTask(classes=None), r"AlteredTask does not say its classes\."),
    "no samples": (AlteredTask(failing), r"AlteredTask cannot be sampled: KeyError: 'prototypes'\."),
    "no batch": (AlteredTask(lambda b, g: (b.inputs, b.labels)), r"gives a tuple, not a Batch"),
    "shape": (
        AlteredTask(lambda b, g: replace(b, inputs=b.inputs[:, 1:])),
        r"\(train\) gives inputs of shape \(8, 15, 16\), not \(n, \*input_shape\) = \(8, 16, 16\)",
    ),
    "dtype": (
        AlteredTask(lambda b, g: replace(b, inputs=b.inputs.double())),
        r"gives inputs of torch\.float64, not torch\.float32",
    ),
    "vocabulary": (
        AlteredTask(lambda b, g: replace(b, inputs=b.inputs.long().abs() + 9), vocabulary=9),
        r"shows tokens outside its vocabulary of 9",
    ),
    "not finite": (AlteredTask(lambda b, g: replace(b, inputs=b.inputs / 0)), r"gives inputs that are not finite"),
    "labels": (AlteredTask(lambda b, g: replace(b, labels=b.labels[1:])), r"gives 7 labels for 8 samples"),
    "type of labels": (
        AlteredTask(lambda b, g: replace(b, labels=b.labels.int())),
        r"gives labels of torch\.int32, not torch\.int64",
    ),
    "classes": (AlteredTask(classes=2), r"gives labels outside its 2 classes"),
    "steps": (
        AlteredTask(lambda b, g: replace(b, steps={"first": b.labels[:3]})),
        r"gives 3 answers of step 'first' for 8 samples",
    ),
    "its own randomness": (
        AlteredTask(lambda b, g: replace(b, inputs=torch.randn(b.inputs.shape))),
        r"gives other samples for the same state of the generator",
    ),
    "always the same": (AlteredTask(lambda b, g: FIXED), r"gives the same samples whatever the state of the generator"),
    "cannot score": (AlteredTask(per_token=True), r"cannot score outputs of shape \(8, 16, 10\)"),
    "loss": (Scored(loss=lambda x: x.detach()), r"gives a loss that is not one finite number with a gradient"),
    "accuracy": (Scored(accuracy=lambda x: x / 0), r"gives an accuracy that is not one finite number"),
    "wrong accuracy": (Scored(accuracy=lambda x: 1 - x), r"does not give its own labels the accuracy 1 and the lower loss"),
    "one level": (Levelled(GOOD), r"has 1 levels; it takes two at least, the shortcut and the floor"),
    "a level that is not finite": (Levelled(Level("some", float("nan"), 0.5), GOOD), r"has a level that is not finite"),
    "levels out of order": (Levelled(GOOD, BAD), r"has levels out of order: 'some' is not better than 'all'"),
}


@pytest.mark.parametrize("what", BROKEN_TASKS)
def test_a_broken_task_is_told_what_it_does_wrong(what: str) -> None:
    task, sentence = BROKEN_TASKS[what]
    with pytest.raises(ContractError, match=sentence):
        check_task(task)


def test_a_broken_model_is_told_what_it_does_wrong() -> None:
    task: Task = Tiles()
    tokens, features = task.input_shape
    right = nn.Sequential(nn.Flatten(), nn.Linear(tokens * features, task.classes))
    check_model(right, task)
    for model, sentence in (
        (nn.Linear(features, task.classes), r"Linear gives outputs of shape \(8, 16, 10\), not \(8, 10\)\."),
        (nn.Linear(3, 3), r"Linear cannot answer Tiles: RuntimeError: "),
        (nn.Sequential(nn.Flatten(), nn.Identity(), nn.Linear(256, 10)).requires_grad_(False), r"cuts the gradient"),
    ):
        with pytest.raises(ContractError, match=sentence):
            check_model(model, task)


def test_the_masks_of_the_check_are_one_of_each_kind() -> None:
    from eureka.testing import _masks

    assert [type(mask).__name__ for mask in _masks()] == ["NoMask", "Causal", "KeyPadding", "Dense"]
    assert isinstance(next(_masks()), NoMask)
