"""Running the ordinary clients of package managers."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from eureka.data.dataset import UnavailableError

PATIENCE = 900.0  # seconds until a client that says nothing is given up


def run_client(command: Sequence[str], folder: Path, patience: float = PATIENCE) -> str:
    """What a client printed; `UnavailableError` when it is not installed, fails or takes for ever."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=patience, check=False)
    except FileNotFoundError:
        raise UnavailableError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} did not end within {patience:.0f} s") from None
    if done.returncode:
        raise UnavailableError(f"{command[0]} failed: {_first_complaint(done.stderr)}")
    return done.stdout


def _first_complaint(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    complaints = [line for line in lines if "error" in line.lower() or line.startswith("E:")]
    return (complaints or lines or ["it did not say why"])[0]
