"""Run an edited training script up to its first optimiser step, write down the param_groups there, and exit.

`eureka.capture.edits` starts this file by its path as a process of its own; it imports nothing of eureka, so that the script's
``sys.path`` and ``sys.modules`` are those of a plain run. The run must do no harm: Landlock (Linux 5.13 and newer) and an audit
hook (everywhere) deny it to write, delete or rename outside a scratch folder, to connect, and to start programs. The audit hook
alone does not see what C++ extensions write; `torch.save`, which does, has a check of its own.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import importlib.machinery
import importlib.util
import io
import json
import os
import platform
import struct
import sys
import tokenize
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MAX_STEPS_AT_ZERO = 10
"""A warm-up written by hand may begin at a learning rate of 0, which says nothing; then a later step is read."""

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PATHS_OF_EVENT: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((0, 2), (1, 3)),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "sqlite3.connect": ((0, None),),
}
"""For each audit event, which of its arguments is a path, and which the descriptor of the folder that it is relative to."""
PROGRAM_EVENTS = {"subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "os.system", "os.forkpty", "pty.spawn"}
"""Not os.fork: the workers of a DataLoader are forks, and a fork keeps the audit hook."""
ADDRESS_EVENTS = {"socket.connect", "socket.sendto", "socket.sendmsg"}


def main(job_file: Path) -> None:
    """Run the job that a JSON file describes; the answer is beside it, unless the script never reaches a step."""
    job = json.loads(job_file.read_text(encoding="utf-8"))
    scratch = job_file.parent.resolve()
    confine(scratch)
    forbid_side_effects(scratch)
    record_first_step(scratch / "groups.json", job["setting"])
    edited = {os.path.realpath(path): copy for path, copy in job["edited"].items()}
    serve_edited_files(edited)
    run_as_main(job["script"], job["module"], job["arguments"], edited)


def confine(scratch: Path) -> None:
    """Deny all writes outside `scratch` and /dev, and TCP connections, by Landlock; do nothing where the kernel has none.

    It holds for the calling thread and those it starts: call it before anything else is imported.
    """
    if platform.system() != "Linux":
        return
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(444, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return
    write, truncate = 1 << 1, 1 << 14
    files = write | sum(1 << bit for bit in range(4, 13))  # remove and make files of all kinds
    files |= (1 << 13 if version >= 2 else 0) | (truncate if version >= 3 else 0)  # rename between folders
    rules = struct.pack("=QQ", files, 1 << 1) if version >= 4 else struct.pack("=Q", files)
    ruleset = libc.syscall(444, rules, ctypes.c_size_t(len(rules)), 0)
    if ruleset < 0:
        return
    for folder, allowed in ((str(scratch), files), ("/dev/shm", files), ("/dev", files & (write | truncate))):  # GPUs are in /dev
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_PATH)
            libc.syscall(445, ruleset, 1, struct.pack("=Qi", allowed, descriptor), 0)
            os.close(descriptor)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS, without which the next call is refused
    libc.syscall(446, ruleset, 0)
    os.close(ruleset)


def forbid_side_effects(scratch: Path) -> None:
    """Raise PermissionError where the script writes outside `scratch`, connects or starts a program."""
    folders = (f"{scratch}/", "/dev/shm/")

    def check_path(path: Any, folder: int | None = None) -> None:
        if isinstance(path, int):  # an open file, which was checked when it was opened
            return
        path = os.fsdecode(path)
        if folder is not None and folder >= 0:
            path = str(Path(f"/proc/self/fd/{folder}").readlink() / path)
        path = os.path.realpath(path)
        if path != os.devnull and not path.startswith(folders):
            raise PermissionError(f"eureka tries a change: nothing may write to {path}")

    def check(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, mode, flags = arguments
            if path is not None and (flags & WRITE_FLAGS or (isinstance(mode, str) and set(mode) & set("wax+"))):
                check_path(path)
        elif event in PATHS_OF_EVENT:
            if event == "sqlite3.connect" and arguments[0] in (":memory:", b":memory:"):
                return
            for path, folder in PATHS_OF_EVENT[event]:  # indices
                check_path(arguments[path], None if folder is None else arguments[folder])
        elif event in PROGRAM_EVENTS:
            raise PermissionError(f"eureka tries a change: no program is started ({event})")
        elif event in ADDRESS_EVENTS and not is_of_multiprocessing(arguments[1]):
            raise PermissionError(f"eureka tries a change: no connection is made ({event})")

    def is_of_multiprocessing(address: Any) -> bool:
        """Tell the sockets by which the workers of a DataLoader hand tensors over."""
        if address is None:  # sendmsg over a connection that exists
            return True
        name = os.fsdecode(address) if isinstance(address, str | bytes) else ""
        return name.startswith(("\0listener-", *folders))

    sys.addaudithook(check)
    import _posixsubprocess  # multiprocessing's "spawn" starts Python by it, and no audit event says so

    def refuse(*_: Any) -> int:
        raise PermissionError("eureka tries a change: no program is started")

    _posixsubprocess.fork_exec = refuse

    import torch

    file_writer: Callable[..., Any] = torch._C.PyTorchFileWriter

    def checked_writer(target: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(target, str | bytes | os.PathLike):
            check_path(target)
        return file_writer(target, *arguments, **options)

    torch._C.PyTorchFileWriter = checked_writer  # type: ignore[assignment,misc]


def record_first_step(answer: Path, setting: str) -> None:
    """At the first step of any optimiser, write the param_groups of the largest one to `answer` and end the process."""
    import torch
    from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

    steps = 0

    def numbers(group: dict[str, Any]) -> dict[str, float]:
        values = {
            name: value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
            for name, value in group.items()
            if name != "params"
        }
        return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}

    def size(optimizer: Optimizer) -> int:
        return sum(parameter.numel() for group in optimizer.param_groups for parameter in group["params"])

    def record(optimizer: Optimizer, *_: Any) -> None:
        nonlocal steps
        steps += 1
        optimizers = [optimizer]
        for other in gc.get_objects():  # a GAN's other optimiser, or Muon's companion
            if issubclass(type(other), Optimizer) and other is not optimizer:
                with contextlib.suppress(Exception):  # a wrapper whose __init__ has not ended
                    size(other)
                    optimizers.append(other)
        groups = [numbers(group) for group in max(optimizers, key=size).param_groups]
        at_zero = setting == "lr" and all(group.get("initial_lr", group.get("lr")) == 0 for group in groups)
        if at_zero and steps < MAX_STEPS_AT_ZERO:
            return
        partial = answer.with_suffix(".part")
        partial.write_text(json.dumps(groups), encoding="utf-8")
        partial.replace(answer)
        os._exit(0)

    # These methods import the compiler at their first call, only to be left out of compiled code: longer than torch itself takes.
    for method in vars(Optimizer).values():
        if (plain := getattr(method, "__wrapped__", None)) is not None:
            plain.__dynamo_disable = plain
    register_optimizer_step_pre_hook(record)


def serve_edited_files(edited: dict[str, str]) -> None:
    """Let imports and `open` read the edited copies in place of the user's files; names, line numbers and `__file__` stay.

    edited   real path of the user's file to the path of its copy
    """

    class EditedLoader(importlib.machinery.SourceFileLoader):
        def get_code(self, fullname: str) -> types.CodeType:  # passes by the cache of compiled files
            source = Path(edited[os.path.realpath(self.path)]).read_text(encoding="utf-8")
            return compile(source, self.path, "exec", dont_inherit=True)

    class EditedFinder:
        @staticmethod
        def find_spec(
            name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
        ) -> importlib.machinery.ModuleSpec | None:
            if name.rpartition(".")[2] not in names:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is None or spec.origin is None or os.path.realpath(spec.origin) not in edited:
                return None
            spec.loader = EditedLoader(name, spec.origin)
            return spec

    names = {Path(path).parent.name if Path(path).name == "__init__.py" else Path(path).stem for path in edited}
    sys.meta_path.insert(0, EditedFinder)

    def reading_copies(original: Callable[..., Any]) -> Callable[..., Any]:
        def opened(file: Any, *arguments: Any, **options: Any) -> Any:
            if isinstance(file, str | bytes | os.PathLike):
                file = edited.get(os.path.realpath(os.fsdecode(file)), file)
            return original(file, *arguments, **options)

        return opened

    io.open = builtins.open = reading_copies(io.open)
    io.open_code = reading_copies(io.open_code)


def run_as_main(script: str | None, module: str | None, arguments: Sequence[str], edited: dict[str, str]) -> None:
    """Run a script, or a module as `python -m` does, as the real ``__main__``."""
    main_module = types.ModuleType("__main__")
    if module is not None:
        sys.path.insert(0, str(Path.cwd()))
        sys.argv = ["-m", *arguments]  # what Python itself shows while it looks for the module
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{module}.__main__")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(module)
        path = called_as = spec.origin
        main_module.__spec__, main_module.__package__, main_module.__loader__ = spec, spec.parent, spec.loader
    else:
        called_as = str(script)
        path = str(Path(called_as).absolute())
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
        main_module.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main_module.__file__ = path
    main_module.__dict__["__builtins__"] = builtins
    sys.argv = [called_as, *arguments]
    with tokenize.open(edited.get(os.path.realpath(path), path)) as file:
        source = file.read()
    this_module = sys.modules["__main__"]  # the hooks live in it: it must outlast its place in sys.modules
    sys.modules["__main__"] = main_module
    exec(compile(source, path, "exec", dont_inherit=True), main_module.__dict__)
    del this_module


if __name__ == "__main__":
    main(Path(sys.argv[1]))
