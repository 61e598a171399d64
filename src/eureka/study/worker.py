"""One run in a process of its own: ``python -m eureka.study.worker FOLDER``. The folder's config says what to do."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from eureka.config import run_config
from eureka.errors import EurekaError
from eureka.experiment import run
from eureka.runs import Metrics, RunFolder
from eureka.training.signals import Interrupted


def work(folder: RunFolder, parent: int) -> int:
    """Carry out the run; stop after a checkpoint when the parent is gone. Returns the exit code."""

    def stop_if_orphaned(_line: Metrics) -> None:
        if os.getppid() != parent:
            signal.raise_signal(signal.SIGTERM)

    try:
        config = folder.config()
        if config is None:
            raise EurekaError(f"{folder.path} holds no config.json.")
        run(run_config(**config.parts), folder, stop_if_orphaned)
    except Interrupted as stop:
        return 128 + stop.signum
    except EurekaError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(work(RunFolder(Path(sys.argv[1])), int(sys.argv[2])))
