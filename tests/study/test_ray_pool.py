"""A study on a Ray cluster of two nodes, on this machine, one of which is lost while it runs."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eureka.config import RunConfig
from eureka.experiment import run
from eureka.runs import RunFolder
from eureka.study.plan import Study
from eureka.study.summary import summarise

pytest.importorskip("ray", reason="ray is not installed")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own deprecations
        import ray
        from ray._private import services
        from ray.cluster_utils import Cluster

        # Ray asks the routing table for an address of this machine; the nodes of this test stay on loopback
        monkeypatch.setattr(services, "get_node_ip_address", lambda *_: "127.0.0.1")
        monkeypatch.setattr(ray.util, "get_node_ip_address", lambda *_: "127.0.0.1")
        nodes = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
        )
        yield nodes
        ray.shutdown()
        nodes.shutdown()  # type: ignore[no-untyped-call]


def test_a_lost_node_costs_only_time_and_every_run_equals_one_of_this_process(
    tiny: RunConfig, tmp_path: Path, cluster: Any
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from eureka.study.ray_pool import RayPool

        second = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.1")
        config = tiny.but({"training.steps": 1200, "training.checkpoint_every": 50, "training.log_every": 25})
        study = Study.over(config, {"training.seed": [0, 1, 2]}, tmp_path / "study")
        folders = study.prepare()
        pool = RayPool(cluster.address)
        assert pool.workers >= 1

        def lose_a_node() -> None:
            deadline = time.monotonic() + 90
            while sum(bool(folder.metrics()) for folder in folders) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
            cluster.remove_node(second)

        thread = threading.Thread(target=lose_a_node)
        thread.start()
        failures = pool.run(folders, budget_seconds=900)
        thread.join()

    assert failures == []
    assert len(cluster.worker_nodes) == 0
    assert [cell.seeds for cell in summarise(folders).cells] == [[0, 1, 2]], "every run is recorded, none twice"
    run(study.configs[0], tmp_path / "here")
    assert folders[0].metrics_file.read_bytes() == RunFolder(tmp_path / "here").metrics_file.read_bytes()
