"""Run a training script unchanged, as `python script.py …` or `python -m module …` would run it."""

from __future__ import annotations

import importlib.util
import sys
import tokenize
import traceback
import types
from collections.abc import Sequence
from pathlib import Path

from eureka.errors import RequestError

OUR_FOLDER = str(Path(__file__).parents[1])


class Script:
    """A script or module with its own arguments.

    >>> Script.find(None, "no.such.module", [])
    Traceback (most recent call last):
    ...
    eureka.errors.RequestError: there is no module no.such.module here; name it as in python -m no.such.module.
    """

    def __init__(
        self, file: Path, module: str | None, arguments: Sequence[str], code: types.CodeType, package: str | None
    ) -> None:
        self.file, self.module, self.arguments, self._code, self._package = file, module, list(arguments), code, package

    @classmethod
    def find(cls, file: Path | None, module: str | None, arguments: Sequence[str]) -> Script:
        """Compile what was named, or raise in one sentence."""
        if module is not None:
            return cls._of_module(module, arguments)
        assert file is not None
        if not file.exists():
            raise RequestError(f"{file} is not there; give the path of a training script.")
        if file.is_dir():
            raise RequestError(f"{file} is a folder; give the path of a training script.")
        return cls(file.absolute(), None, arguments, _compiled(file), None)

    @classmethod
    def _of_module(cls, module: str, arguments: Sequence[str]) -> Script:
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))  # as `python -m` does
        try:
            spec = importlib.util.find_spec(module)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{module}.__main__")
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
            raise RequestError(f"there is no module {module} here; name it as in python -m {module}.")
        return cls(Path(spec.origin), module, arguments, _compiled(Path(spec.origin)), spec.name.rpartition(".")[0])

    @property
    def title(self) -> str:
        """What the user typed, without secrets."""
        from eureka.capture.secrets import without_secrets

        name = f"-m {self.module}" if self.module is not None else self.file.name
        return " ".join([name, *without_secrets(self.arguments)])

    @property
    def key(self) -> str:
        """What tells it from other scripts."""
        return str(self.file.resolve())

    def run(self) -> int:
        """Run it to its end and return its exit code; a traceback of its own is printed as Python would print it."""
        main = types.ModuleType("__main__")
        main.__file__ = str(self.file)
        main.__dict__["__builtins__"] = __builtins__
        if self.module is not None:
            main.__package__ = self._package
            # Processes that DataLoaders spawn import the module by this name; a script they run by its path.
            main.__spec__ = importlib.util.find_spec(self.module)
            if main.__spec__ is not None and main.__spec__.submodule_search_locations is not None:
                main.__spec__ = importlib.util.find_spec(f"{self.module}.__main__")
        else:
            sys.path[0] = str(self.file.parent)  # in the place of the folder of our own command
        sys.argv = [str(self.file), *self.arguments]
        sys.modules["__main__"] = main
        try:
            exec(self._code, main.__dict__)
        except SystemExit as stop:
            return _exit_code(stop)
        except BaseException as error:
            _print_traceback(error)
            return 130 if isinstance(error, KeyboardInterrupt) else 1
        return 0


def _compiled(file: Path) -> types.CodeType:
    try:
        with tokenize.open(file) as opened:
            source = opened.read()
        return compile(source, str(file.absolute()), "exec", dont_inherit=True)
    except SyntaxError as error:
        raise RequestError(f"{file}:{error.lineno}: {type(error).__name__}: {error.msg}; nothing was run.") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise RequestError(f"{file} is no Python script ({error}).") from None


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None or isinstance(stop.code, int):
        return stop.code or 0
    sys.stderr.write(f"{stop.code}\n")
    return 1


def _print_traceback(error: BaseException) -> None:
    """Print it without the lines of ours that called the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(OUR_FOLDER):
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
