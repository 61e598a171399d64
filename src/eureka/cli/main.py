"""The `eureka` command: verbs, errors in one sentence, exit codes.

0 done · 1 the work failed · 2 the request was wrong · 130/143 interrupted; run again to go on
"""

from __future__ import annotations

import errno
import sys
from typing import Annotated

import typer

from eureka.cli.bench import app as bench
from eureka.cli.compare import compare
from eureka.cli.data import app as data
from eureka.cli.detect import detect
from eureka.cli.diagnose import diagnose
from eureka.cli.fixes import app as fixes
from eureka.cli.listing import recipes
from eureka.cli.options import print_help_alone
from eureka.cli.probe import probe
from eureka.cli.race import race
from eureka.cli.report import report
from eureka.cli.run import run
from eureka.cli.script import TakesScript
from eureka.cli.study import study
from eureka.cli.tasks import app as tasks
from eureka.cli.watch import watch
from eureka.errors import EurekaError, RequestError, missing_extra

USAGE_ERROR: type[Exception] = typer.BadParameter.__bases__[0]  # Typer keeps its Click to itself

THE_USERS = (errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP)
"""What is wrong with a path that somebody gave."""
app = typer.Typer(
    name="eureka",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from eureka import __version__

        sys.stdout.write(f"eureka {__version__}\n")
        raise typer.Exit


VersionOption = Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")]


@app.callback()
def eureka(
    context: typer.Context,
    _version: VersionOption = False,
) -> None:
    """Find long loss plateaus, trace them to the attention softmax, and remove them."""
    print_help_alone(context)


for verb in (compare, study, watch, run, detect, probe, report, recipes):
    app.command()(verb)
app.command(cls=TakesScript)(diagnose)
app.command(cls=TakesScript)(race)
for name, verbs in (("fixes", fixes), ("tasks", tasks), ("data", data), ("bench", bench)):
    app.add_typer(verbs, name=name)


def run_command() -> int:
    """Run the command line; the exit code. `Stopped` is passed on."""
    try:
        code = app(standalone_mode=False)
    except RequestError as error:
        code = _say(str(error), 2)
    except EurekaError as error:
        code = _say(str(error), 1)
    except USAGE_ERROR as error:
        code = _say(_usage(error), 2)
    except ModuleNotFoundError as error:  # the light installation has neither torch nor what goes with it
        if (told := missing_extra(error)) is None:
            raise
        code = _say(str(told), 2)
    except BrokenPipeError:  # the reader of our output went away, as in `eureka fixes | head -1`
        sys.stderr.close()
        code = 141
    except OSError as error:  # a path that cannot be used, wherever it was met
        code = _say(f"cannot use {error.filename}: {error.strerror}.", 2 if error.errno in THE_USERS else 1)
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    sys.stderr.write(f"eureka: {message}\n")
    return code


def _usage(error: BaseException) -> str:
    message = str(getattr(error, "format_message", lambda: error)()).rstrip()
    context = getattr(error, "ctx", None)
    hint = f" See '{context.command_path} --help'." if context is not None else ""
    return message + ("" if message.endswith((".", "?")) else ".") + hint
