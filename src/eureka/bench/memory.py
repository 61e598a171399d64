"""How much memory a job needs at its peak, in a process of its own.

``python -m eureka.bench.memory package.module:function '{"argument": 1}'`` calls the function, which returns jobs by name; each
is run once, and what the process held at most during it, above what it held just before, is printed in megabytes.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eureka.bench.timing import Job
from eureka.errors import WorkError

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def peak_megabytes(target: str, **arguments: Any) -> dict[str, float]:
    """The peak of each job that ``package.module:function`` makes of the arguments, in a fresh process with one thread."""
    command = [sys.executable, "-m", "eureka.bench.memory", target, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"it ended with {done.returncode}"]
        raise WorkError(f"the memory of {target} with {arguments} could not be measured: {last[0]}.")
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run_jobs(jobs: Mapping[str, Job]) -> dict[str, float]:
    """The peak of each job, run once in this process."""
    found = {}
    for name, job in jobs.items():
        before = _start()
        job()
        found[name] = round(max(0.0, _peak() - before), 1)
    return found


def _start() -> float:
    """Megabytes held now; Linux counts the peak from here on, other systems from the start of the process."""
    if RESET.exists():
        RESET.write_text("5", encoding="ascii")
        return _status("VmRSS")
    return _peak()


def _peak() -> float:
    if STATUS.exists():
        return _status("VmHWM")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def _status(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(encoding="ascii"), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    jobs = getattr(importlib.import_module(module), name)(**json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(run_jobs(jobs)))


if __name__ == "__main__":
    main()
