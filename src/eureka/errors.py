"""Every error this library raises on purpose.

::

    EurekaError
    ├── RequestError (ValueError)        the request was wrong: the command line exits with 2
    │   ├── UnknownNameError (KeyError)  no such fix, task, recipe, key …; names the nearest
    │   ├── MissingContextError          a part needs what its caller did not say, such as the number of heads
    │   ├── ContractError                a part that somebody brought does not do what every part must
    │   └── MissingExtraError            an optional package is not installed; says how to install it
    └── WorkError                        the request was right, the work failed: exits with 1
        ├── FolderBusyError              another process is at work in this folder
        └── DamagedRunError              a run folder holds something that cannot be trusted

Each message is one sentence or two: what was wrong, with what value, what to do.
"""

from __future__ import annotations

import difflib
import importlib.util
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path

DISTRIBUTION = "eureka-moments"
"""What `pip install` is told; `eureka` is what Python imports and what the command is called."""
EXTRAS = {
    **dict.fromkeys(["torch", "sklearn", "PIL", "filelock", "httpx", "platformdirs", "yaml"], "torch"),
    "scipy": "report",
}
"""The smallest extra that brings a package which the light installation lacks, by the name that is imported."""


class EurekaError(Exception):
    """Base class of all errors that eureka raises."""


class RequestError(EurekaError, ValueError):
    """The request was wrong; nothing was done."""


class UnknownNameError(RequestError, KeyError):
    """A name that nobody registered, with the names that exist and the nearest of them.

    >>> str(UnknownNameError("recipe", "tyles", ["tiles", "digits"]))
    "unknown recipe 'tyles'; did you mean 'tiles'? Known: digits, tiles."
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        self.message = f"unknown {kind} {name!r}{hint} Known: {', '.join(names) or 'none'}."
        super().__init__(self.message)

    def __str__(self) -> str:  # KeyError would show the repr of its argument
        return self.message


class MissingContextError(RequestError):
    """A part needs something that only its caller knows."""

    def __init__(self, message: str, missing: Iterable[str]) -> None:
        super().__init__(message)
        self.missing = tuple(missing)


class ContractError(RequestError):
    """An operator, task or model does not do what every part of its kind must."""


class MissingExtraError(RequestError, ImportError):
    """An optional dependency is not installed.

    >>> str(MissingExtraError("ray", "ray"))
    "this needs the package 'ray': pip install 'eureka-moments[ray]'"
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"this needs the package {package!r}: pip install '{DISTRIBUTION}[{extra}]'")


def missing_extra(error: ModuleNotFoundError) -> MissingExtraError | None:
    """What to say about an import that failed, if it is of a package that one of our extras brings.

    >>> str(missing_extra(ModuleNotFoundError(name="torch.nn")))
    "this needs the package 'torch': pip install 'eureka-moments[torch]'"
    """
    package = (error.name or "").split(".")[0]
    return MissingExtraError(package, EXTRAS[package]) if package in EXTRAS else None


def need(package: str) -> None:
    """Raise unless `package`, one of `EXTRAS`, can be imported; nothing is imported."""
    if not importlib.util.find_spec(package):
        raise MissingExtraError(package, EXTRAS[package])


class WorkError(EurekaError):
    """The request was right, but the work could not be done."""


class FolderBusyError(WorkError):
    """Another process is at work in this folder."""


class DamagedRunError(WorkError):
    """A run folder holds something that cannot be trusted."""


def own_line(error: BaseException) -> str:
    """Where in the user's own code an error came from: the last line that is neither ours nor an installed package's."""
    libraries = {str(Path(__file__).parent), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib"))}
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not any(frame.filename.startswith(folder) for folder in libraries)]
    own = [frame for frame in own if not frame.filename.startswith("<")]
    return f" in line {own[-1].lineno} of {Path(own[-1].filename).name}" if own else ""
