"""What the Kubernetes manifests give Headrace's containers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = sorted(Path("deploy/kubernetes").glob("*.yaml"))


def pods(value: Any) -> Iterator[dict[str, Any]]:
    """Return what describes a pod, at whatever depth."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for one in value.values():
            yield from pods(one)


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.stem)
def test_each_container_gets_a_key_that_it_accepts_and_a_home_that_lasts(manifest: Path) -> None:
    found = [
        (container, {volume["name"]: volume for volume in pod["volumes"]})
        for document in yaml.safe_load_all(manifest.read_text(encoding="utf-8"))
        for pod in pods(document)
        for container in (*pod.get("initContainers", ()), *pod["containers"])
        if container["image"].startswith("headrace-")
    ]
    assert found
    for container, volumes in found:
        # What kubelet mounts is open to fsGroup, and no such master.key is read.
        assert "HEADRACE_MASTER_KEY" in {one["name"] for one in container["env"]}
        mounted = {one["mountPath"]: one["name"] for one in container["volumeMounts"]}
        # The governor writes people's keys beside the master key.
        assert "/var/lib/headrace/secrets" not in mounted
        # Captures that wait, the audit log, people's keys.
        assert "persistentVolumeClaim" in volumes[mounted["/var/lib/headrace"]]
