"""eureka: find long loss plateaus, trace them to the attention softmax, and remove them.

    >>> import eureka
    >>> eureka.detect([2.0] * 100 + [0.5] * 100)[0].kind
    'eureka'

Names are loaded when they are first used: `eureka.detect` needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from eureka.stranger import warn_of_stranger

if TYPE_CHECKING:
    from eureka.attention.attend import attend
    from eureka.attention.operator import Operator, make_operator
    from eureka.capture.attach import attach
    from eureka.config import RunConfig, run_config
    from eureka.curves.detector import detect
    from eureka.curves.moment import EurekaMoment
    from eureka.curves.online import OnlineDetector
    from eureka.curves.plateaus import find_plateaus
    from eureka.curves.readers.curve import read_curve, read_log
    from eureka.doctor.diagnose import diagnose
    from eureka.doctor.finding import Diagnosis, Finding
    from eureka.errors import EurekaError, RequestError
    from eureka.experiment import RunResult, run
    from eureka.forks.setup import Setup
    from eureka.patching.patch import patch
    from eureka.probes.attention import AttentionProbe
    from eureka.probes.induction import induction_scores
    from eureka.probes.linear import linear_probes
    from eureka.probes.position_share import position_share
    from eureka.probes.regions import attention_to
    from eureka.racing.race import Race
    from eureka.racing.remedy import Remedy
    from eureka.racing.run import race
    from eureka.recipes import recipe
    from eureka.report.write import write_report
    from eureka.starts.clear_start import ClearStart, clear_start

__version__ = "0.1.0"

__all__ = [
    "AttentionProbe",
    "ClearStart",
    "Diagnosis",
    "EurekaError",
    "EurekaMoment",
    "Finding",
    "OnlineDetector",
    "Operator",
    "Race",
    "Remedy",
    "RequestError",
    "RunConfig",
    "RunResult",
    "Setup",
    "attach",
    "attend",
    "attention_to",
    "clear_start",
    "detect",
    "diagnose",
    "find_plateaus",
    "induction_scores",
    "linear_probes",
    "make_operator",
    "patch",
    "position_share",
    "race",
    "read_curve",
    "read_log",
    "recipe",
    "run",
    "run_config",
    "write_report",
]

_MODULES = {
    "AttentionProbe": "eureka.probes.attention",
    "Setup": "eureka.forks.setup",
    "attach": "eureka.capture.attach",
    "EurekaMoment": "eureka.curves.moment",
    "OnlineDetector": "eureka.curves.online",
    "detect": "eureka.curves.detector",
    "diagnose": "eureka.doctor.diagnose",
    "attend": "eureka.attention.attend",
    "attention_to": "eureka.probes.regions",
    "find_plateaus": "eureka.curves.plateaus",
    "induction_scores": "eureka.probes.induction",
    "linear_probes": "eureka.probes.linear",
    "patch": "eureka.patching.patch",
    "position_share": "eureka.probes.position_share",
    **dict.fromkeys(["read_curve", "read_log"], "eureka.curves.readers.curve"),
    "Race": "eureka.racing.race",
    "Remedy": "eureka.racing.remedy",
    "race": "eureka.racing.run",
    "recipe": "eureka.recipes",
    "write_report": "eureka.report.write",
    **dict.fromkeys(["ClearStart", "clear_start"], "eureka.starts.clear_start"),
    **dict.fromkeys(["Diagnosis", "Finding"], "eureka.doctor.finding"),
    **dict.fromkeys(["EurekaError", "RequestError"], "eureka.errors"),
    **dict.fromkeys(["Operator", "make_operator"], "eureka.attention.operator"),
    **dict.fromkeys(["RunConfig", "run_config"], "eureka.config"),
    **dict.fromkeys(["RunResult", "run"], "eureka.experiment"),
}
"""Where each public name lives; its module is imported when the name is first used."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        from eureka.errors import missing_extra

        if (told := missing_extra(error)) is None:
            raise
        raise told from None


def __dir__() -> list[str]:
    return sorted(__all__)


warn_of_stranger()
