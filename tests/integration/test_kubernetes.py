"""The Kubernetes manifests are valid, name settings that exist, and leave processes the time to drain. The Helm chart
makes the same ones."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import click
import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from api.base.metrics import CATALOGUE
from api.build import openapi_document
from cli.main import main
from shared.runtime.settings import SECRETS, ApiSettings, NodeSettings, Settings, WorkerSettings
from tests.support.eventually import PATIENCE
from tests.support.paths import ROOT
from worker.node.catalogue import read_catalogue

FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = "1.30"
"""The oldest version of Kubernetes that the manifests are checked for."""
OURS = ("kustomize.config.k8s.io/", "keda.sh/", "monitoring.coreos.com/")
"""API groups without schemas in Kubernetes."""
CHART = FOLDER.parent / "helm" / "vinoqueue"
FILES = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*.yaml"))
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())

Manifest = dict[str, Any]


def manifests(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all((FOLDER / path).read_text(encoding="utf-8")))


@cache
def paths() -> frozenset[str]:
    """The paths that replicas serve."""
    return frozenset(json.loads(openapi_document())["paths"])


@cache
def patches() -> set[Path]:
    """The files that kustomizations use as patches."""
    return {
        (path.parent / patch["path"])
        for path in FILES
        if path.name == "kustomization.yaml"
        for patch in manifests(path)[0].get("patches", ())
        if "path" in patch
    }


def rendered(overlay: str) -> list[Manifest]:
    """The overlay's manifests, by kustomize. Skips the test where there is none."""
    return list(yaml.safe_load_all(_kustomized(overlay)))


@cache
def _kustomized(overlay: str) -> str:
    for program, arguments in (("kustomize", ["build"]), ("kubectl", ["kustomize"])):
        if shutil.which(program):
            folder = FOLDER / "overlays" / overlay
            command = [program, *arguments, str(folder)]
            return subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    pytest.skip("needs kustomize or kubectl")


def check(found: list[Manifest]) -> None:
    for manifest in found:
        if not manifest["apiVersion"].startswith(OURS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kubernetes_validate.validate(manifest, VERSION, strict=True)


def pods(found: list[Manifest]) -> Iterator[tuple[Manifest, Manifest, Manifest]]:
    """The workloads with their pods' specifications and their containers."""
    for manifest in found:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            specification = manifest["spec"]["template"]["spec"]
            for container in specification["containers"]:
                yield manifest, specification, container


WORKLOADS = [pod for path in FILES if path not in patches() for pod in pods(manifests(path))]
by_name = pytest.mark.parametrize("pod", WORKLOADS, ids=lambda pod: pod[0]["metadata"]["name"])


@pytest.mark.parametrize("path", [path for path in FILES if path not in patches()], ids=str)
def test_a_manifest_is_valid(path: Path) -> None:
    check(manifests(path))


@pytest.mark.parametrize("path", [path for path in FILES if path.name == "kustomization.yaml"], ids=str)
def test_a_kustomization_names_files_and_folders_that_exist(path: Path) -> None:
    (found,) = manifests(path)
    for name in (*found.get("resources", ()), *found.get("components", ())):
        place = FOLDER / path.parent / name
        assert place.is_file() or (place / "kustomization.yaml").is_file()


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_is_valid_as_a_whole(overlay: str) -> None:
    found = rendered(overlay)
    check(found)
    names = [(one["kind"], one["metadata"]["name"]) for one in found]
    assert len(set(names)) == len(names)
    assert {one["metadata"]["namespace"] for one in found} == {"vinoqueue"}
    for one in found:
        if one["kind"] == "ScaledObject":
            target = (one["spec"]["scaleTargetRef"].get("kind", "Deployment"), one["spec"]["scaleTargetRef"]["name"])
            assert "replicas" not in found[names.index(target)]["spec"]
    selectors = [str(workload["spec"]["selector"]) for workload, _, _ in pods(found)]
    assert len(set(selectors)) == len(selectors)
    for workload, specification, container in pods(found):
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        assert mounted == {volume["name"] for volume in specification["volumes"]} | claims
        known = {name for kind, name in names if kind == "ConfigMap"}
        assert {source["configMapRef"]["name"] for source in container.get("envFrom", ())} <= known


def test_workers_of_different_models_have_budgets_of_their_own() -> None:
    found = rendered("full")
    budgets = [one["spec"]["selector"]["matchLabels"] for one in found if one["kind"] == "PodDisruptionBudget"]
    workers = [workload for workload, _, _ in pods(found) if workload["metadata"]["name"].startswith("worker-")]
    assert len(workers) == 2
    for worker in workers:
        labels = worker["spec"]["template"]["metadata"]["labels"]
        assert sum(budget.items() <= labels.items() for budget in budgets) == 1


def test_devices_are_requested_from_their_plugins() -> None:
    limits = {
        workload["metadata"]["name"]: container["resources"]["limits"]
        for workload, _, container in pods(rendered("full"))
    }
    assert limits["worker-example-gpu"]["gpu.intel.com/i915"] == 1


@by_name
def test_a_pod_has_no_more_rights_than_it_needs(pod: tuple[Manifest, Manifest, Manifest]) -> None:
    _, specification, container = pod
    assert specification["securityContext"]["runAsNonRoot"] is True
    assert specification["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert specification["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "memory" in container["resources"]["limits"]


@by_name
def test_a_pod_has_the_time_to_drain(pod: tuple[Manifest, Manifest, Manifest]) -> None:
    _, specification, container = pod
    (settings,) = manifests(Path("base/settings.yaml"))
    drain = int(settings["data"]["VINOQUEUE_DRAIN"]) + ApiSettings.model_fields["drain_delay"].default
    assert specification["terminationGracePeriodSeconds"] > drain
    assert "lifecycle" not in container


def test_settings_exist_and_secrets_come_from_files() -> None:
    (shared,) = manifests(Path("base/settings.yaml"))
    kinds: dict[str, type[Settings]] = {"api": ApiSettings, "worker": WorkerSettings, "node": NodeSettings}
    patched = [pod for path in sorted(patches()) for pod in pods(manifests(path))]
    assert patched
    for manifest, _, container in [*WORKLOADS, *patched]:
        kind = kinds.get(manifest["metadata"]["name"])
        if kind is not None:
            known = {f"VINOQUEUE_{name.upper()}" for name in kind.model_fields}
            known |= {f"VINOQUEUE_{name.upper()}_FILE" for name in SECRETS}
            named = {variable["name"] for variable in container["env"]}
            assert named | shared["data"].keys() <= known
            assert not named & {f"VINOQUEUE_{name.upper()}" for name in SECRETS}


def parse(arguments: Sequence[str]) -> None:
    """Parse the arguments of a ``vinoqueue`` command without running it."""
    command: click.Command | None = main
    rest = list(arguments)
    while isinstance(command, click.Group):
        _, command, rest = command.resolve_command(click.Context(command), rest)
    assert command is not None
    command.make_context(command.name, rest)


@by_name
def test_probes_ask_for_what_exists(pod: tuple[Manifest, Manifest, Manifest], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.base.instances.running", list)
    _, _, container = pod
    ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
    probes = [container[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in container]
    assert probes
    for probe in probes:
        if "httpGet" in probe:
            assert probe["httpGet"]["path"] in paths()
            assert ports[probe["httpGet"]["port"]] == ApiSettings.model_fields["port"].default
        elif "exec" in probe:
            program, *arguments = probe["exec"]["command"]
            assert program == "vinoqueue"
            parse(arguments)
        else:
            assert probe["tcpSocket"]["port"] in ports


def test_ports_and_paths_lead_to_containers() -> None:
    ports = {
        port["name"]: port["containerPort"] for _, _, container in WORKLOADS for port in container.get("ports", ())
    }
    found = [one for path in FILES if path not in patches() for one in manifests(path)]
    services = [port for one in found if one["kind"] == "Service" for port in one["spec"]["ports"]]
    assert {port["targetPort"]: port["port"] for port in services} == ports
    (monitor,) = (one for one in found if one["kind"] == "ServiceMonitor")
    for endpoint in monitor["spec"]["endpoints"]:
        assert endpoint["port"] in {port["name"] for port in services}
        assert endpoint["path"] in paths()
    opened = {
        port["port"]
        for one in found
        if one["kind"] == "NetworkPolicy"
        for rule in one["spec"].get("ingress", ())
        for port in rule["ports"]
    }
    assert opened == set(ports.values())


def test_secrets_are_mounted_and_have_the_keys_that_the_page_makes() -> None:
    page = (FOLDER.parents[1] / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    made = dict(re.findall(r"create secret generic (\S+) --from-\w+=([\w.-]+)", page))
    read: dict[str, str] = {}
    for _, specification, container in WORKLOADS:
        secrets = {
            volume["name"]: volume["secret"]["secretName"] for volume in specification["volumes"] if "secret" in volume
        }
        folders = {
            mount["mountPath"]: secrets[mount["name"]]
            for mount in container["volumeMounts"]
            if mount["name"] in secrets
        }
        files = [one["value"] for one in container.get("env", ()) if one["name"].endswith("_FILE")]
        files += [one for one in container.get("command", ()) if one.startswith("/run/secrets/")]
        assert files
        for file in map(PurePosixPath, files):
            read[folders[str(file.parent)]] = file.name
    assert read == made


@pytest.mark.parametrize(("image", "variable"), [("api", "VINOQUEUE_FILES_DIR"), ("worker", "XDG_CACHE_HOME")])
def test_what_an_image_writes_to_is_a_volume(image: str, variable: str) -> None:
    """The root file systems are read-only."""
    dockerfile = (FOLDER.parent / "docker" / f"{image}.Dockerfile").read_text(encoding="utf-8")
    written = re.search(rf"\b{variable}=(\S+)", dockerfile)
    assert written is not None
    (container,) = (container for manifest, _, container in WORKLOADS if manifest["metadata"]["name"] == image)
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {written[1], "/tmp"}


def test_the_command_for_the_stores_users_finds_them_and_nothing_else() -> None:
    docs = FOLDER.parents[1] / "docs"
    pattern = re.search(r"grep -E '([^']*)' docs/security.md", (docs / "kubernetes.md").read_text(encoding="utf-8"))
    rules = re.search(r"<!-- acl.*?```\n(.*?)```", (docs / "security.md").read_text(encoding="utf-8"), re.DOTALL)
    assert pattern is not None
    assert rules is not None
    lines = (docs / "security.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if re.search(pattern[1], line)] == rules[1].splitlines()


@pytest.mark.parametrize(
    ("overlay", "metrics"),
    [
        ("full", {"vinoqueue_queue_waiting", "vinoqueue_queue_claimed"}),
        ("models", {"vinoqueue_model_memory_bytes", "vinoqueue_model_wait_seconds"}),
    ],
)
def test_autoscaling_asks_for_metrics_that_exist(overlay: str, metrics: set[str]) -> None:
    (scaled,) = manifests(Path(f"overlays/{overlay}/scaled-object.yaml"))
    (trigger,) = scaled["spec"]["triggers"]
    assert {metric.sample for metric in CATALOGUE if metric.sample in trigger["metadata"]["query"]} == metrics


def test_the_catalogue_of_the_nodes_is_valid_and_mounted_where_they_read_it() -> None:
    file = FOLDER / "nodes" / "models.toml"
    assert read_catalogue(file, WorkerSettings())
    ((_, specification, container),) = [pod for pod in WORKLOADS if pod[0]["metadata"]["name"] == "node"]
    (volume,) = (one["name"] for one in specification["volumes"] if "configMap" in one)
    (folder,) = (one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume)
    assert {"name": "VINOQUEUE_MODELS", "value": f"{folder}/{file.name}"} in container["env"]


RENDER = """
import json, sys
from helm_python import Chart
with Chart.load(sys.argv[1]) as chart:
    json.dump(dict(chart.render(json.load(sys.stdin), name="vinoqueue", namespace="vinoqueue")), sys.stdout)
"""


def charted(values: dict[str, Any]) -> list[Manifest]:
    """The manifests of the Helm chart, by Helm's own engine. Skips the test where there is none.

    Raises :class:`ValueError` with the engine's message if it refuses the values.
    """
    texts = [text for name, text in json.loads(_helm(json.dumps(values))).items() if name.endswith(".yaml")]
    return [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]


@cache
def _helm(values: str) -> str:
    # In a process of its own: the engine's Go runtime has crashed a process that had many threads and signal handlers.
    if importlib.util.find_spec("helm_python") is None:
        pytest.skip("needs helm-python-sdk, which is for Linux on x86-64")
    command = [sys.executable, "-c", RENDER, str(CHART)]
    done = subprocess.run(command, input=values, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    return done.stdout


def comparable(found: list[Manifest]) -> dict[tuple[str, str], Manifest]:
    """Manifests by kind and name, without what kustomize alone or Helm alone adds."""
    for manifest in found:
        manifest["metadata"].pop("namespace", None)
    for workload, _, container in pods(found):
        workload["spec"]["template"]["metadata"].pop("annotations", None)
        container.get("env", []).sort(key=lambda variable: variable["name"])
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in found}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_chart_makes_the_manifests_of_the_overlays(overlay: str) -> None:
    example = CHART / f"{overlay}.yaml"
    found = charted(yaml.safe_load(example.read_text(encoding="utf-8")) if example.exists() else {})
    check(found)
    expected, made = comparable(rendered(overlay)), comparable(found)
    assert made.keys() == expected.keys()
    for name, manifest in made.items():
        assert manifest == expected[name]


def test_values_of_the_chart_reach_the_pods() -> None:
    more = {"VINOQUEUE_LOG_FORMAT": "json"}
    found = comparable(
        charted(
            {
                "settings": {"VINOQUEUE_DRAIN": "120"},
                "api": {"env": more, "files": {"accessMode": "ReadWriteOnce", "storageClassName": "fast"}},
                "workers": {"default-cpu": None, "own": {**WORKER, "env": more, "replicas": 0}},
            }
        )
    )
    assert ("Deployment", "worker-default-cpu") not in found
    assert found["Deployment", "worker-own"]["spec"]["replicas"] == 0
    for name in ("api", "worker-own"):
        pod = found["Deployment", name]["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] == 150
        assert {"name": "VINOQUEUE_LOG_FORMAT", "value": "json"} in pod["containers"][0]["env"]
    claim = found["PersistentVolumeClaim", "files"]["spec"]
    assert (claim["accessModes"], claim["storageClassName"]) == (["ReadWriteOnce"], "fast")


def test_a_change_of_settings_starts_pods_again() -> None:
    def annotations(values: dict[str, Any]) -> list[Any]:
        return [
            workload["spec"]["template"]["metadata"].get("annotations")
            for workload, _, _ in pods(charted(values))
            if workload["kind"] == "Deployment"
        ]

    before = annotations({})
    assert all(before)
    assert annotations({"settings": {}}) == before
    assert not any(new in before for new in annotations({"settings": {"VINOQUEUE_LEASE": "3"}}))


WORKER = {"image": "i", "model": "m", "device": "GPU.1", "resources": {"limits": {"memory": "1Gi"}}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"worker": {}},
        {"api": {"replicas": "2"}},
        {"api": {"env": {"VINOQUEUE_MAX_QUEUE": 10}}},
        {"settings": {"VINOQUEUE_DRAIN": "30s"}},
        {"workers": {"Upper": WORKER}},
        {"workers": {"own": {**WORKER, "device": "TPU"}}},
        {"workers": {"own": {**WORKER, "resources": {}}}},
        {"workers": {"own": {**WORKER, "autoscaling": {"maxReplicas": 3}}}},
        {"nodes": {"models": {"chat": {}}}},
        {"nodes": {"autoscaling": {"maxReplicas": 3}}},
        {"store": {"maxmemory": "1Gi"}},
    ],
    ids=str,
)
def test_wrong_values_of_the_chart_are_refused(wrong: dict[str, Any]) -> None:
    charted({"workers": {"own": WORKER}})
    with pytest.raises(ValueError, match="values don't meet the specifications of the schema"):
        charted(wrong)
