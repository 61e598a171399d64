"""One run in a process of its own: ``python -m eureka.study.worker FOLDER PARENT``. The folder's config says what to do."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from eureka.config import run_config
from eureka.errors import EurekaError
from eureka.experiment import run
from eureka.runs import RunFolder
from eureka.training.signals import Interrupted

LOOK_SECONDS = 1.0
"""How often a worker looks for its parent."""


def work(folder: RunFolder, parent: int) -> int:
    """Carry out the run; stop after a checkpoint when the parent is gone. Returns the exit code."""
    threading.Thread(target=_stop_without, args=(parent,), daemon=True).start()
    try:
        config = folder.config()
        if config is None:
            raise EurekaError(f"{folder.path} holds no config.json.")
        run(run_config(**config.parts), folder)
    except Interrupted as stop:
        return 128 + stop.signum
    except EurekaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _stop_without(parent: int) -> None:
    """Ask this process to stop, once, when its parent is gone."""
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(work(RunFolder(Path(sys.argv[1])), int(sys.argv[2])))
