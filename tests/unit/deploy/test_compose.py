"""compose.yaml hands the settings to its services, and closes what containers don't need."""

import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from shared.runtime.settings import SECRETS, ApiSettings, NodeSettings, Settings, WorkerSettings
from tests.support.dockerfile import requirements
from tests.support.paths import ROOT

COMPOSE = (ROOT / "compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, Any] = yaml.safe_load(COMPOSE)["services"]
KINDS: dict[str, type[Settings]] = {"api": ApiSettings, "worker": WorkerSettings, "node": NodeSettings}

INSIDE = {"VINOQUEUE_HOST", "VINOQUEUE_PORT"}
"""Fixed inside the API's container: on the host they say where its port is published."""


def variables(kind: type[Settings]) -> set[str]:
    names = {f"VINOQUEUE_{name.upper()}" for name in kind.model_fields}
    return names | {f"VINOQUEUE_{name.upper()}_FILE" for name in SECRETS & kind.model_fields.keys()}


SECRETS_OF_OTHERS = {
    "api": {"HF_TOKEN"},
    "worker": {"VINOQUEUE_API_KEYS", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"},
}
"""Variables of .env that a service must not have."""


@pytest.mark.parametrize("service", [*KINDS, "worker-gpu"])
def test_the_file_of_settings_reaches_every_service_without_secrets_of_others(service: str) -> None:
    """What is in the file, also what is misspelt; the service warns of that. Few values here take precedence."""
    assert SERVICES[service]["env_file"] == [{"path": ".env", "required": False}]
    environment = SERVICES[service]["environment"]
    blank = {name for name, value in environment.items() if value == ""}
    assert blank == SECRETS_OF_OTHERS["api" if service == "api" else "worker"]
    fixed = {name for name, value in environment.items() if value and f"${{{name}" not in value}
    assert fixed == (INSIDE if service == "api" else set())


def test_the_published_port_follows_host_and_port() -> None:
    assert SERVICES["api"]["ports"] == ["${VINOQUEUE_HOST:-127.0.0.1}:${VINOQUEUE_PORT:-8000}:8000"]


@pytest.mark.parametrize("service", SERVICES)
def test_containers_have_no_more_rights_than_they_need(service: str) -> None:
    part = SERVICES[service]
    assert part["cap_drop"] == ["ALL"]
    assert "cap_add" not in part
    assert part["security_opt"] == ["no-new-privileges:true"]
    assert part["logging"]["options"].keys() == {"max-size", "max-file"}


def test_the_example_names_what_compose_reads_and_nothing_else() -> None:
    """compose.yaml's own variables have no prefix, so that a typo in a setting is found by its prefix."""
    settings = {name for kind in KINDS.values() for name in variables(kind)}
    pages = "".join((ROOT / f"docs/{page}.md").read_text("utf-8") for page in ("batches", "deployment", "tracing"))
    libraries = set(re.findall(r"\b(?:AWS|HF|OTEL)_\w+", pages))
    example = (ROOT / ".env.example").read_text(encoding="utf-8")
    named = set(re.findall(r"^#?([A-Z_]+)=", example, re.MULTILINE))
    read = set(re.findall(r"\$\{([A-Z_]+)", COMPOSE))
    own = {name for name in read if not name.startswith("VINOQUEUE_")}
    assert own <= named
    assert named <= own | settings | libraries


def test_a_node_replaces_the_worker() -> None:
    worker, node = SERVICES["worker"], SERVICES["node"]
    assert (node["profiles"], node["image"], node["command"]) == (["models"], worker["image"], ["node"])
    assert worker["environment"].items() <= node["environment"].items()


def test_a_worker_on_a_gpu_is_one_on_cpus_with_the_device() -> None:
    plain, special = SERVICES["worker"], SERVICES["worker-gpu"]
    assert special["profiles"] == ["gpu"]
    assert special["devices"] == ["/dev/dri"]
    assert special["environment"] == plain["environment"] | {"VINOQUEUE_DEVICE": "${VINOQUEUE_DEVICE:-GPU}"}
    own = {"profiles", "image", "build", "environment", "devices", "group_add"}
    assert {name: part for name, part in special.items() if name not in own} == {
        name: part for name, part in plain.items() if name not in own
    }


@pytest.mark.parametrize(
    ("service", "variable"), [("api", "API_EXTRAS"), ("worker", "WORKER_EXTRAS"), ("worker-gpu", "WORKER_EXTRAS")]
)
def test_extras_reach_the_build(service: str, variable: str) -> None:
    assert SERVICES[service]["build"]["args"]["EXTRAS"] == f"${{{variable}:-}}"


@pytest.mark.parametrize("image", ["api", "worker"])
@pytest.mark.parametrize("extras", ["", "otel", "otel,s3", "otel s3", "otel, s3"])
@pytest.mark.parametrize("model", ["default", "none"])
def test_an_image_installs_each_of_its_extras(image: str, extras: str, model: str) -> None:
    parts = [image, *(["model"] if (image, model) == ("worker", "default") else []), *re.findall(r"\w+", extras)]
    assert requirements(image, EXTRAS=extras, MODEL=model) == [f"requirements/{part}.txt" for part in parts]


def test_grafana_and_prometheus_get_files_that_exist() -> None:
    for service in ("prometheus", "grafana"):
        assert SERVICES[service]["profiles"] == ["observability"]
        for volume in SERVICES[service]["volumes"]:
            source = volume.partition(":")[0]
            assert not source.startswith("./") or (ROOT / source).exists()
            assert ":ro" in volume or not source.startswith("./")


def test_the_proxy_does_not_buffer_streams() -> None:
    configuration = (ROOT / "deploy/proxy/nginx.conf").read_text(encoding="utf-8")
    assert "proxy_buffering off;" in configuration
    assert "proxy_http_version 1.1;" in configuration


@pytest.mark.parametrize("file", ["compose.yaml", ".env.example", "docs/deployment.md"])
def test_several_replicas_are_documented_with_ports_that_do_not_collide(file: str) -> None:
    """Compose can't publish one port for two containers, and has no condition by which a profile could change it."""
    commands = [line for line in (ROOT / file).read_text(encoding="utf-8").splitlines() if "--scale api=" in line]
    assert commands
    assert all("VINOQUEUE_PORT=0 docker compose --profile proxy up" in command for command in commands)
