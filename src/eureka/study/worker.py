"""One run in a process of its own: ``python -m eureka.study.worker FOLDER PARENT``. The folder's config says what to do."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from eureka.config import RunConfig, run_config
from eureka.errors import EurekaError, FolderBusyError
from eureka.experiment import run
from eureka.runs import RunFolder
from eureka.training.signals import Interrupted

LOOK_SECONDS = 1.0
"""How often a worker looks for its parent."""
BUSY = 75
"""What `carry_out` returns when another process holds the run."""


def work(folder: RunFolder, parent: int) -> int:
    """Carry out the run; stop after a checkpoint when the parent is gone. Returns the exit code."""
    stop_without(parent)
    code = carry_out(folder)
    return 1 if code == BUSY else code


def carry_out(folder: RunFolder) -> int:
    """Carry out the run of a folder in this process; the exit code. An error of ours is one line."""
    try:
        run(config_of(folder), folder)
    except Interrupted as stop:
        return 128 + stop.signum
    except EurekaError as error:
        sys.stderr.write(f"{error}\n")
        return BUSY if isinstance(error, FolderBusyError) else 1
    return 0


def config_of(folder: RunFolder) -> RunConfig:
    config = folder.config()
    if config is None:
        raise EurekaError(f"{folder.path} holds no config.json.")
    return run_config(**config.parts)


def stop_without(parent: int) -> None:
    """From here on a thread asks this process to stop, once, when its parent is gone."""
    threading.Thread(target=_stop_without, args=(parent,), daemon=True).start()


def _stop_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(work(RunFolder(Path(sys.argv[1])), int(sys.argv[2])))
