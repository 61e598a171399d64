"""Run compiled models as they are written: hooks would have them compiled anew, and no pass can be followed inside."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def uncompiled() -> Iterator[None]:
    """While inside, nothing that `torch.compile` made is compiled or run compiled (PyTorch 2.6 or later).

    It cannot begin inside of compiled code: that is a `RuntimeError`.
    """
    if "torch._dynamo" not in sys.modules or not hasattr(torch.compiler, "set_stance"):
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield
