"""Does the code of a module write attention out: products, and a softmax over one of them? Where, and can it be followed?"""

from __future__ import annotations

import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from eureka.patching.bytecode import names_in, read
from eureka.patching.slot import base_class

SOFTENING = ("softmax", "Softmax")
MULTIPLYING = ("matmul", "bmm", "baddbmm", "einsum", "baddbmm_")
UNFOLLOWED = {
    "BigBirdBlockSparseAttention": "over blocks of keys",
    "BigBirdPegasusBlockSparseAttention": "over blocks of keys",
    "GroundingDinoBiMultiHeadAttention": "in both directions at once",
    "GroupViTAssignAttention": "over the queries",
    "LEDEncoderSelfAttention": "over a sliding window",
    "LongT5LocalAttention": "over blocks of keys",
    "LongT5TransientGlobalAttention": "over blocks of keys",
    "LongformerSelfAttention": "over a sliding window",
    "MMGroundingDinoBiMultiHeadAttention": "in both directions at once",
    "PegasusXGlobalLocalAttention": "over blocks of keys",
    "WavLMAttention": "inside F.multi_head_attention_forward",
}
"""Classes of transformers whose softmax is not one over q·k with the keys of a row side by side, and what it is over."""
OTHER_SOFTMAX = (
    *("EfficientAdditiveAttention", "MHAttentionMap", "CDMoE", "Indexer", "A3Module", "GRUCell", "RowAttentionPooling"),
    *("PairWeightedAveraging", "SQuADHead"),
)
"""How the names of classes of transformers end that have a softmax, products and projections, but no attention by q·k."""
PROJECTION = re.compile(
    r"(.*_)?w?(q|k|v|qk|kv|qkv|query|key|value|queries|keys|values|att|attn|attention)(_.*|\d*)|in_proj.*|(query|key|value)layer"
    r"|to(qkv|queries|keys|values)|w_?(qs|ks|vs)",
    re.I,
)
"""Names of submodules and parameters by which a module that projects to q, k and v is known."""
QUERY, KEY = (
    re.compile(rf"({one}|{many}|(.*_)?({word}))(_.*|\d*)", re.I)
    for one, many, word in (("q", "qs", "query|queries"), ("k", "ks", "keys?"))
)
"""Names of variables by which a function that multiplies q and k is known."""
SOFTMAX = re.compile(r"(?<![A-Za-z_])_?softmax\(|\.softmax\(")


def is_written_out(module: nn.Module) -> bool:
    """Whether the code of a module takes the softmax of a product: attention that is written out."""
    cls, children = base_class(module), list(module.children())
    reading = read(cls)
    softens = bool(reading.mentioning(*SOFTENING)) or any(isinstance(child, nn.Softmax) for child in children)
    if not softens or cls.__name__.endswith(OTHER_SOFTMAX):
        return False
    if not (is_named(module) or _has_queries_and_keys(cls)):
        return False
    return any(read(own).mentioning(*MULTIPLYING) for own in (cls, *(type(c) for c in children if not next(c.children(), None))))


@cache
def _has_queries_and_keys(cls: type) -> bool:
    """Whether a function that multiplies, of those that its methods reach, has variables called so.

    Classes of transformers are known by their names, as those in `OTHER_SOFTMAX`.
    """
    if cls.__module__.partition(".")[0] == "transformers":
        return False
    multiplying = [function for function in read(cls).functions if names_in(function.__code__) & set(MULTIPLYING)]
    variables = [function.__code__.co_varnames for function in multiplying]
    return any(any(map(QUERY.fullmatch, names)) and any(map(KEY.fullmatch, names)) for names in variables)


def is_named(module: nn.Module) -> bool:
    """Whether names of its layers and parameters tell that it projects to q, k and v."""
    return any(map(PROJECTION.fullmatch, _own_names(module)))


def _own_names(module: nn.Module) -> list[str]:
    return [*dict(module.named_children()), *dict(module.named_parameters(recurse=False))]


def unfollowed(cls: Any) -> str | None:
    """What the softmax of a class is over, where `by_hand.Follower` cannot follow it; None if nothing is known."""
    return next((UNFOLLOWED[base.__name__] for base in cls.__mro__ if base.__name__ in UNFOLLOWED), None)


def by_hand(module: nn.Module) -> str | None:
    """The file and line where the code of a module takes a softmax; None if it takes none, or if its source is not there."""
    for cls in base_class(module).__mro__:
        if not cls.__module__.startswith(("torch.", "builtins")) and (found := _softmax_line(cls)):
            return found
    return None


@cache
def _softmax_line(cls: type) -> str | None:
    try:
        lines, first = inspect.getsourcelines(cls)
        file = inspect.getsourcefile(cls) or ""
    except (OSError, TypeError):
        return None
    for number, line in enumerate(lines, first):
        if SOFTMAX.search(line.partition("#")[0]):
            return f"{Path(file).name}:{number}"
    return None
