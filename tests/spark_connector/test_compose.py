"""docker-compose.yml and Dockerfile, checked by reading them: there is no Docker engine in CI."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="pyyaml is not installed")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


@pytest.fixture(scope="module")
def dockerfile() -> str:
    return (ROOT / "Dockerfile").read_text()


def test_the_parts_are_there(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"chronicle", "spark-master", "spark-worker", "pipeline"}
    assert "version" not in compose
    assert "profiles" not in compose["services"]["chronicle"]  # a plain `up` starts the server
    assert compose["services"]["pipeline"]["profiles"] == ["pipeline"]


def test_whatever_a_service_refers_to_is_declared(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for name, service in services.items():
        for volume in service.get("volumes", []):
            source = volume.rsplit(":/", 1)[0] if volume.count(":/") == 1 else volume
            source = re.sub(r"\$\{\w+:-(.*)\}", r"\1", source.split(":/")[0])
            assert source.startswith(".") or source in compose["volumes"], (name, volume)
        for secret in service.get("secrets", []):
            assert secret in compose["secrets"], name
        for network in service.get("networks", []):
            assert network in compose["networks"], name
        for other, how in service.get("depends_on", {}).items():
            assert other in services, name
            assert how == {"condition": "service_healthy"}
            assert "healthcheck" in services[other], f"{name} waits for {other}'s health"
            shared = set(service.get("profiles", [])) <= set(services[other].get("profiles", []))
            assert shared or "profiles" not in services[other], f"{other} is not up with {name}"


def test_builds_name_targets_of_the_dockerfile(compose: dict[str, Any], dockerfile: str) -> None:
    targets = re.findall(r"^FROM \S+ AS (\w+)$", dockerfile, re.MULTILINE)
    assert targets == ["base", "wheel", "server", "spark"]
    for name, service in compose["services"].items():
        assert service["build"]["target"] in targets, name
        assert ":latest" not in service["image"]
        assert ":" in service["image"]


def test_nothing_is_reachable_from_outside_or_runs_as_root(compose: dict[str, Any]) -> None:
    for name, service in compose["services"].items():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name
        assert service["user"] == "10001:10001"
        assert "mem_limit" in service
    secret = compose["services"]["chronicle"]["environment"]["CHRONICLE_TOKEN_FILE"]
    assert secret == "/run/secrets/token"


def test_the_server_is_told_only_what_it_knows(compose: dict[str, Any]) -> None:
    settings = pytest.importorskip(
        "chronicle.server.access.settings", reason="server extra is missing"
    )
    known = {f"CHRONICLE_{name.upper()}" for name in settings.Settings.model_fields}
    given = {
        name
        for name in compose["services"]["chronicle"]["environment"]
        if name.startswith("CHRONICLE_")
    }
    assert given <= known


def test_master_and_workers_run_classes_that_spark_has(
    compose: dict[str, Any], dockerfile: str
) -> None:
    pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")
    home = Path(pyspark.__file__).parent
    assert (home / "bin" / "spark-class").exists()
    master = compose["services"]["spark-master"]["command"]
    worker = compose["services"]["spark-worker"]["command"]
    assert master[:2] == ["spark-class", "org.apache.spark.deploy.master.Master"]
    assert worker[:2] == ["spark-class", "org.apache.spark.deploy.worker.Worker"]
    port = master[master.index("--port") + 1]
    assert worker[-1] == f"spark://spark-master:{port}"
    assert "openjdk-17-jre-headless" in dockerfile


def test_images_hold_what_their_services_run(compose: dict[str, Any], dockerfile: str) -> None:
    stages = dict(re.findall(r"^FROM \S+ AS (\w+)$(.*?)(?=^FROM|\Z)", dockerfile, re.M | re.S))
    assert "[server,cli,flight]" in stages["server"]
    assert "[cli,spark]" in stages["spark"]
    command = re.search(r"^CMD (\[.*\])$", stages["server"], re.M)
    assert command is not None
    assert shlex.split(yaml.safe_load(command[1])[0]) == ["chronicle"]
    dependencies = (ROOT / "pyproject.toml").read_text()
    for extra in ("server", "cli", "flight", "spark"):
        assert re.search(rf"^{extra} = \[", dependencies, re.M)


def test_the_store_of_the_pipeline_is_shared_by_all_of_spark(compose: dict[str, Any]) -> None:
    mounts = {
        name: {volume.split(":")[0] for volume in service["volumes"]}
        for name, service in compose["services"].items()
    }
    for name in ("spark-master", "spark-worker", "pipeline"):
        assert "lake" in mounts[name]
        assert "data" not in mounts[name]  # the server's own: one writer process


def test_every_port_that_the_server_opens_is_published_and_told(
    compose: dict[str, Any], dockerfile: str
) -> None:
    service = compose["services"]["chronicle"]
    opened = [service["environment"][f"CHRONICLE_{name}"] for name in ("PORT", "FLIGHT_PORT")]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in opened]
    server = dockerfile.split(" AS server")[1].split("\nFROM ")[0]
    assert re.search(r"^EXPOSE (.*)$", server, re.M)[1].split() == opened  # type: ignore[index]
    (extras,) = re.findall(r'pip install "\$\(ls /wheels/\*\.whl\)\[([\w,]+)\]"', server)
    assert {"server", "flight"} <= set(extras.split(","))
