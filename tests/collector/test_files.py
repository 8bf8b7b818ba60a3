"""What the files name exists, and what is said about them is so."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from servers.otelcol import FILES

from otel_journal import open_store
from otel_journal.settings import PREFIX, SIDECAR_PREFIX, Settings
from otel_journal.sidecar.configuration import SidecarSettings

CONFIGS: Final = ("otelcol.yaml", "otelcol-gateway.yaml", "balanced.yaml")
YAML_FILES: Final = sorted(str(path.relative_to(FILES)) for path in FILES.rglob("*.yaml"))
_VARIABLE: Final = re.compile(r"\$\{env:(OTELCOL_\w+):-([^}]*)\}")
_IMAGE: Final = "otel/opentelemetry-collector-contrib"
_OURS: Final = {
    *(PREFIX + field.name.upper() for field in dataclasses.fields(Settings)),
    *(SIDECAR_PREFIX + field.name.upper() for field in dataclasses.fields(SidecarSettings)),
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_SERVICE_NAME",
}
_FOREIGN: Final = {
    "GOMEMLIMIT",
    "JAEGER_LISTEN_HOST",
    "PROMETHEUS_URL",
    "JAEGER_URL",
    "GF_SECURITY_ADMIN_PASSWORD",
}


def _defaults() -> dict[str, set[str]]:
    texts = ((FILES / config).read_text() for config in CONFIGS)
    found: dict[str, set[str]] = {}
    for text in texts:
        for name, default in _VARIABLE.findall(text):
            found.setdefault(name, set()).add(default)
    return found


def _load(name: str) -> list[Any]:
    return [document for document in yaml.safe_load_all((FILES / name).read_text()) if document]


def _containers(node: Any) -> Iterator[dict[str, Any]]:
    """Every mapping that has an image, wherever it stands."""
    if isinstance(node, list):
        for child in node:
            yield from _containers(child)
    elif isinstance(node, dict):
        if "image" in node:
            yield node
        for child in node.values():
            yield from _containers(child)


def _variables(container: dict[str, Any]) -> set[str]:
    given = container.get("environment", container.get("env", ()))
    return {one["name"] if isinstance(one, dict) else one for one in given}


@pytest.mark.parametrize("name", YAML_FILES)
def test_every_file_is_yaml(name: str) -> None:
    """A file that cannot be read is of no use to anybody."""
    assert _load(name)


def test_the_readme_knows_every_variable_and_its_defaults() -> None:
    """The table has a row for each variable of the configurations, and no other."""
    rows = [
        line.split("|")
        for line in (FILES / "README.md").read_text().splitlines()
        if line.startswith("| `OTELCOL_")
    ]
    named = {name: row[2] for row in rows for name in re.findall(r"`(OTELCOL_\w+)`", row[1])}
    defaults = _defaults()

    assert set(named) == set(defaults)
    for name, values in defaults.items():
        for value in values:
            assert (f"`{value}`" if value else "empty") in named[name], name


def test_the_builder_has_every_part_that_is_used() -> None:
    """Each component of the configurations comes from a module of the builder's file."""
    modules = {
        re.sub(r"(receiver|processor|exporter|connector|extension)$", "", Path(part).name)
        for kind in ("receivers", "processors", "exporters", "connectors", "extensions")
        for part in (m["gomod"].split()[0] for m in _load("builder.yaml")[0][kind])
    }
    renamed = {"otlpgrpc": "otlp"}
    used = {
        component.partition("/")[0].replace("_", "")
        for config in CONFIGS
        for kind in ("receivers", "processors", "exporters", "connectors", "extensions")
        for component in _load(config)[0].get(kind, ())
    }

    assert {renamed.get(name, name) for name in used} <= modules


def test_agent_and_gateway_redact_alike() -> None:
    """What sends to the gateway directly is no reason to keep content."""
    agent, gateway = (_load(name)[0]["processors"]["transform/redact"] for name in CONFIGS[:2])

    assert agent == gateway


def test_all_files_mean_the_same_collector() -> None:
    """The builder, compose and Kubernetes pin one version."""
    texts = [
        (FILES / name).read_text()
        for name in YAML_FILES
        if name.startswith("kubernetes") or name == "compose.yaml"
    ]
    versions = {version for text in texts for version in re.findall(rf"{_IMAGE}:(\S+)", text)}

    assert versions == {_load("builder.yaml")[0]["dist"]["version"]}


@pytest.mark.parametrize(
    "name", ["compose.yaml", "kubernetes/agent.yaml", "kubernetes/gateway.yaml"]
)
def test_containers_set_only_variables_that_somebody_reads(name: str) -> None:
    """A misspelt variable would be ignored in silence."""
    known = _OURS | _FOREIGN | set(_defaults())
    set_here = {name for container in _containers(_load(name)) for name in _variables(container)}

    assert set_here
    assert set_here <= known


def test_every_image_is_pinned() -> None:
    """Two people who start the stack get the same one."""
    images = {
        container["image"]
        for name in ("compose.yaml", "kubernetes/agent.yaml", "kubernetes/gateway.yaml")
        for container in _containers(_load(name))
    }

    assert images
    assert all(":" in image and not image.endswith(":latest") for image in images)


def test_compose_mounts_what_exists() -> None:
    """Docker would make an empty folder of a path that does not exist."""
    stack = _load("compose.yaml")[0]
    sources = [
        volume.split(":")[0]
        for service in stack["services"].values()
        for volume in service.get("volumes", ())
    ]
    paths = [source for source in sources if source.startswith(".")]

    assert paths
    assert all((FILES / path).exists() for path in paths)
    assert {source for source in sources if not source.startswith(".")} == set(stack["volumes"])


def test_the_application_of_compose_writes_a_journal(tmp_path: Path) -> None:
    """With the variables that compose gives it, a sidecar has something to send: a failure, too."""
    application = _load("compose.yaml")[0]["services"]["application"]
    url = f"sqlite:///{tmp_path}/journal.db"
    given = {
        **application["environment"],
        "OTEL_JOURNAL_STORE": url,
        "OTEL_SERVICE_NAME": "example",
    }
    subprocess.run(  # noqa: S603 - our own program
        [sys.executable, FILES / "compose" / "application.py", "5"],
        env={**os.environ, **given},
        check=True,
        timeout=60.0,
    )
    with closing(open_store(url)) as store:
        events = store.read(limit=1_000)

    ends = [e.event_type for e in events if e.event_type in {"run.end", "run.error"}]
    assert ends == ["run.end"] * 4 + ["run.error"]
    assert {e.metadata["export"] for e in events if e.event_type == "process.beat"} == {"sidecar"}


def test_compose_publishes_on_loopback_only() -> None:
    """Nobody shows traces to a network by accident."""
    ports = [
        port
        for service in _load("compose.yaml")[0]["services"].values()
        for port in service.get("ports", ())
    ]

    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


@pytest.mark.parametrize("name", ["otel-journal", "otelcol", "alertmanager"])
def test_compose_has_targets_of_its_own(name: str) -> None:
    """Prometheus finds the services of the stack, by names that the stack has."""
    services = set(_load("compose.yaml")[0]["services"])
    groups = yaml.safe_load((FILES / f"compose/targets/{name}.yml").read_text())
    hosts = {target.split(":")[0] for group in groups for target in group["targets"]}

    assert hosts
    assert hosts <= services
    assert (FILES / f"targets/{name}.yml").exists()


def test_kustomize_takes_files_that_exist() -> None:
    """The manifests, and the configurations that become a ConfigMap."""
    wanted = _load("kustomization.yaml")[0]
    [generated] = wanted["configMapGenerator"]

    assert all((FILES / name).is_file() for name in [*wanted["resources"], *generated["files"]])
    assert set(generated["files"]) == set(CONFIGS)


def test_a_pod_is_not_taken_out_of_service_with_its_collector() -> None:
    """The sidecar is asked whether it lives, not whether the collector takes its spans."""
    [pod] = [doc["spec"]["template"]["spec"] for doc in _load("kubernetes/agent.yaml")]
    collector, sidecar = pod["initContainers"]

    assert {one["restartPolicy"] for one in pod["initContainers"]} == {"Always"}
    assert sidecar["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert not {"readinessProbe", "startupProbe"} & sidecar.keys()
    assert "readinessProbe" not in collector


def test_pods_mount_volumes_that_they_have() -> None:
    """A mount without a volume is refused; a journal that is not shared stays empty."""
    [agent, gateway, _] = [*_load("kubernetes/agent.yaml"), *_load("kubernetes/gateway.yaml")]
    for document in (agent, gateway):
        pod = document["spec"]["template"]["spec"]
        claims = document["spec"].get("volumeClaimTemplates", ())
        has = {v["name"] for v in pod["volumes"]} | {c["metadata"]["name"] for c in claims}
        mounts = [mount for c in _containers(pod) for mount in c["volumeMounts"]]
        assert {mount["name"] for mount in mounts} == has

    journal = [
        mount["mountPath"]
        for container in _containers(agent)
        for mount in container["volumeMounts"]
        if mount["name"] == "journal"
    ]
    assert journal == ["/var/lib/otel-journal"] * 2


def test_monitors_name_ports_that_pods_have() -> None:
    """A monitor of a port that nobody has finds nothing, and says nothing."""
    documents = [*_load("kubernetes/agent.yaml"), *_load("kubernetes/gateway.yaml")]
    ports = {port["name"] for c in _containers(documents) for port in c.get("ports", ())}
    pods, services = _load("kubernetes/monitors.yaml")

    assert {end["port"] for end in pods["spec"]["podMetricsEndpoints"]} <= ports
    assert {end["port"] for end in services["spec"]["endpoints"]} <= ports


def test_the_unit_starts_a_command_that_exists() -> None:
    """The options are those of the sidecar, the variables are known."""
    unit = (FILES / "systemd/otel-journal-sidecar.service").read_text()
    [started] = re.findall(r"^ExecStart=\S+/otel-journal (.+)$", unit, re.MULTILINE)
    named = set(re.findall(r"^Environment=(\w+)=", unit, re.MULTILINE))

    assert started == "sidecar --store sqlite:////var/lib/otel-journal/journal.db"
    assert named
    assert named <= _OURS
    assert f"{SIDECAR_PREFIX}DRAIN_TIMEOUT" in unit


def test_the_recipe_makes_prometheus_rules(repository: Path) -> None:
    """The command of the README yields what the operator takes: the groups of both files."""
    readme = (FILES / "README.md").read_text()
    [recipe] = re.findall(r"```sh\n(.*?)```", readme, re.DOTALL)
    made = subprocess.run(  # noqa: S603 - the command that the README gives
        ["/bin/sh", "-c", recipe.replace("| kubectl apply -f -", "")],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    )
    documents = [one for one in yaml.safe_load_all(made.stdout) if one]
    rules = repository / "dashboards" / "rules"

    assert {one["kind"] for one in documents} == {"PrometheusRule"}
    assert [one["spec"] for one in documents] == [
        yaml.safe_load((rules / name).read_text())
        for name in ("settings.rules.yml", "otel-journal.rules.yml")
    ]
