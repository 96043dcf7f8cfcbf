"""The Helm chart makes valid manifests that name settings that exist, and leave processes the time to drain."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import kubernetes_validate
import pytest
import yaml  # type: ignore[import-untyped]

from api.build import openapi_document
from api.metrics.catalogue import CATALOGUE
from shared.runtime.settings import SECRETS, ApiSettings, NodeSettings, Settings, WorkerSettings
from tests.support.dockerfile import variables
from tests.support.eventually import PATIENCE
from tests.support.fleet import free_port
from tests.support.paths import ROOT
from tests.support.store import Store
from tests.support.store_rules import TESTER, page_rules
from worker.node.catalogue import read_catalogue

DEPLOY = ROOT / "deploy"
DOCS = ROOT / "docs"
CHART = DEPLOY / "helm" / "vinoqueue"
VERSION = "1.30"
"""The oldest version of Kubernetes that the manifests are checked for."""
OTHERS = ("keda.sh/", "monitoring.coreos.com/")
"""API groups without schemas in Kubernetes."""
EXAMPLES = ("values", "full", "models")
"""The default values, and the examples of values."""

RENDER = """
import json, sys
from helm_python import Chart
with Chart.load(sys.argv[1]) as chart:
    json.dump(dict(chart.render(json.load(sys.stdin), name="vinoqueue", namespace="vinoqueue")), sys.stdout)
"""

CLUSTER = """#!/bin/sh
# kubectl that keeps secrets in files of their names, and runs commands here.
case "$*" in
    *--from-file=users.acl) cp users.acl vinoqueue-store ;;
    *" -- "*) while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
    *create*) ;;
    *) exit 1 ;;
esac
"""

Manifest = dict[str, Any]
Pod = tuple[Manifest, Manifest, Manifest]
"""A workload, the specification of its pods, and their container."""
Manifests = dict[tuple[str, str], Manifest]
"""By kind and name."""


def charted(values: Manifest) -> Manifests:
    """The manifests of the Helm chart, by Helm's own engine. Skips the test where there is none.

    Raises :class:`ValueError` with the engine's message if it refuses the values.
    """
    texts = [text for name, text in json.loads(_helm(json.dumps(values))).items() if name.endswith(".yaml")]
    found = [manifest for text in texts for manifest in yaml.safe_load_all(text) if manifest]
    by_name = {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in found}
    assert len(by_name) == len(found)
    return by_name


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


def example(name: str) -> Manifest:
    values: Manifest = yaml.safe_load((CHART / f"{name}.yaml").read_text(encoding="utf-8"))
    return values


@pytest.fixture(params=EXAMPLES)
def found(request: pytest.FixtureRequest) -> Manifests:
    return charted(example(request.param))


@cache
def paths() -> frozenset[str]:
    """The paths that replicas serve."""
    return frozenset(json.loads(openapi_document())["paths"])


def pods(found: Manifests) -> Iterator[Pod]:
    for (kind, _), manifest in found.items():
        if kind in ("Deployment", "StatefulSet"):
            specification = manifest["spec"]["template"]["spec"]
            (container,) = specification["containers"]
            yield manifest, specification, container


def of_kind(found: Manifests, wanted: str) -> list[Manifest]:
    return [manifest for (kind, _), manifest in found.items() if kind == wanted]


def test_manifests_are_valid(found: Manifests) -> None:
    for manifest in found.values():
        if not manifest["apiVersion"].startswith(OTHERS):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_manifests_are_consistent(found: Manifests) -> None:
    for scaled in of_kind(found, "ScaledObject"):
        target = scaled["spec"]["scaleTargetRef"]
        assert "replicas" not in found[target.get("kind", "Deployment"), target["name"]]["spec"]
    selectors = [str(workload["spec"]["selector"]) for workload, _, _ in pods(found)]
    assert len(set(selectors)) == len(selectors)
    for workload, specification, container in pods(found):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", ())}
        assert mounted == {volume["name"] for volume in specification["volumes"]} | claims
        for source in container.get("envFrom", ()):
            assert "secretRef" in source or ("ConfigMap", source["configMapRef"]["name"]) in found


def test_each_workload_of_the_service_has_a_disruption_budget(found: Manifests) -> None:
    budgets = [budget["spec"]["selector"]["matchLabels"] for budget in of_kind(found, "PodDisruptionBudget")]
    for workload, _, _ in pods(found):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        count = sum(budget.items() <= labels.items() for budget in budgets)
        assert count == (labels["app.kubernetes.io/component"] != "store")


def test_a_pod_has_no_more_rights_than_it_needs(found: Manifests) -> None:
    for _, specification, container in pods(found):
        assert specification["securityContext"]["runAsNonRoot"] is True
        assert specification["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert specification["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


def test_a_pod_has_the_time_to_drain(found: Manifests) -> None:
    settings = found["ConfigMap", "vinoqueue"]["data"]
    drain = int(settings["VINOQUEUE_DRAIN"]) + ApiSettings.model_fields["drain_delay"].default
    for _, specification, container in pods(found):
        assert specification["terminationGracePeriodSeconds"] > drain
        assert "lifecycle" not in container


def test_settings_exist_and_secrets_come_from_files(found: Manifests) -> None:
    shared = found["ConfigMap", "vinoqueue"]["data"].keys()
    kinds: dict[str, type[Settings]] = {"api": ApiSettings, "worker": WorkerSettings, "node": NodeSettings}
    for _, _, container in pods(found):
        if container["name"] in kinds:
            kind = kinds[container["name"]]
            known = {f"VINOQUEUE_{name.upper()}" for name in kind.model_fields}
            known |= {f"VINOQUEUE_{name.upper()}_FILE" for name in SECRETS}
            named = {variable["name"] for variable in container["env"]}
            assert {name for name in named | shared if not name.startswith("AWS_")} <= known
            assert not named & {f"VINOQUEUE_{name.upper()}" for name in SECRETS}


def test_probes_ask_for_what_exists(found: Manifests) -> None:
    """:mod:`tests.integration.test_health_file` runs the command."""
    image = (DEPLOY / "docker" / "Dockerfile").read_text(encoding="utf-8")
    for _, _, container in pods(found):
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", ())}
        probes = [container[kind] for kind in ("startupProbe", "livenessProbe", "readinessProbe") if kind in container]
        assert probes
        for probe in probes:
            if "httpGet" in probe:
                assert probe["httpGet"]["path"] in paths()
                assert ports[probe["httpGet"]["port"]] == ApiSettings.model_fields["port"].default
            elif "exec" in probe:
                (file,) = re.findall(r"find (\S+)", probe["exec"]["command"][-1])
                assert f"VINOQUEUE_HEALTH_FILE={file}" in image
            else:
                assert probe["tcpSocket"]["port"] in ports


def test_ports_and_paths_lead_to_containers(found: Manifests) -> None:
    ports = {
        port["name"]: port["containerPort"] for _, _, container in pods(found) for port in container.get("ports", ())
    }
    services = [port for service in of_kind(found, "Service") for port in service["spec"]["ports"]]
    assert {port["targetPort"]: port["port"] for port in services} == ports
    for monitor in of_kind(found, "ServiceMonitor"):
        for endpoint in monitor["spec"]["endpoints"]:
            assert endpoint["port"] in {port["name"] for port in services}
            assert endpoint["path"] in paths()
    opened = {
        port["port"]
        for policy in of_kind(found, "NetworkPolicy")
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
    }
    assert opened == set(ports.values())


def test_secrets_are_mounted_and_have_the_keys_that_the_page_makes() -> None:
    page = (DOCS / "kubernetes.md").read_text(encoding="utf-8")
    made = dict(re.findall(r"create secret generic (\S+) --from-\w+=([\w.-]+)", page))
    read: dict[str, str] = {}
    for _, specification, container in pods(charted({})):
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
    (container,) = (container for _, _, container in pods(charted({})) if container["name"] == image)
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {variables(image)[variable], "/tmp"}


def test_the_commands_of_the_page_make_the_first_key(tmp_path: Path) -> None:
    """The commands are run as they are written, with a real store. Only the cluster is not there."""
    page = (DOCS / "kubernetes.md").read_text(encoding="utf-8")
    commands = "".join(re.findall(r"^    (.*\n)", page[: page.index("## Models and devices")], re.MULTILINE))
    before, install, after = re.split(r"(^helm install (?:.*\\\n)*.*\n)", commands, maxsplit=1, flags=re.MULTILINE)
    assert f" {CHART.relative_to(ROOT)} " in install
    (pod,) = re.findall(r"exec -i deploy/(\S+)", after)
    assert ("Deployment", pod) in charted({})
    (tmp_path / "kubectl").write_text(CLUSTER, encoding="utf-8")
    (tmp_path / "kubectl").chmod(0o755)
    (tmp_path / "docs").symlink_to(DOCS)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def run(script: str) -> str:
        command = ["bash", "-euo", "pipefail", "-c", script]
        environment = {"PATH": path, "VINOQUEUE_REDIS_URL_FILE": "/run/secrets/vinoqueue/redis-url"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    admin = run(f'{before}echo "$admin"').splitlines()[-1]
    users = tmp_path / "vinoqueue-store"
    users.write_text(f"{users.read_text(encoding='utf-8')}user {TESTER} on >{TESTER} ~* &* +@all\n", encoding="utf-8")
    store = Store(tmp_path / "store", free_port(), "--aclfile", str(users), user=TESTER)
    try:
        store.start()
        assert "sk-" in run(f"admin={admin}\n{after.replace('valkey:6379', f'127.0.0.1:{store.port}')}")
    finally:
        store.kill()


def test_the_command_for_the_stores_users_finds_them_and_nothing_else() -> None:
    pattern = re.search(r"grep -E '([^']*)' docs/security.md", (DOCS / "kubernetes.md").read_text(encoding="utf-8"))
    assert pattern is not None
    lines = (DOCS / "security.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if re.search(pattern[1], line)] == page_rules()


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("full", {"vinoqueue_queue_waiting", "vinoqueue_queue_claimed"}),
        ("models", {"vinoqueue_model_memory_bytes", "vinoqueue_model_wait_seconds", "vinoqueue_store_up"}),
    ],
)
def test_autoscaling_asks_for_metrics_that_exist(name: str, metrics: set[str]) -> None:
    (scaled,) = of_kind(charted(example(name)), "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    assert {metric.sample for metric in CATALOGUE if metric.sample in trigger["metadata"]["query"]} == metrics


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus")
@pytest.mark.parametrize(
    ("name", "series", "result"),
    [
        ("full", {}, None),
        ("full", {'vinoqueue_queue_waiting{model="SmolLM2-135M-Instruct"}': 5}, None),
        (
            "full",
            {
                'vinoqueue_queue_waiting{model="SmolLM2-135M-Instruct", instance="1"}': 5,
                'vinoqueue_queue_claimed{model="SmolLM2-135M-Instruct", instance="2"}': 3,
            },
            8,
        ),
        ("models", {}, None),
        ("models", {'vinoqueue_store_up{instance="1"}': 1}, 0),
        ("models", {'vinoqueue_store_up{instance="1"}': 0}, 0),
        (
            "models",
            {
                'vinoqueue_store_up{instance="1"}': 1,
                'vinoqueue_store_up{instance="2"}': 1,
                'vinoqueue_model_memory_bytes{node="a", model="small", instance="1"}': 1e9,
                'vinoqueue_model_memory_bytes{node="b", model="small", instance="1"}': 1e9,
                'vinoqueue_model_memory_bytes{node="c", model="small", instance="1"}': 0,
                'vinoqueue_model_wait_seconds{model="chat", instance="1"}': 90,
            },
            3,
        ),
    ],
)
def test_autoscaling_has_no_value_while_no_replica_is_scraped(
    name: str, series: dict[str, float], result: float | None, tmp_path: Path
) -> None:
    """Otherwise KEDA would remove nodes and workers that are in use."""
    (scaled,) = of_kind(charted(example(name)), "ScaledObject")
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["metadata"]["ignoreNullValues"] == "false"
    samples = [] if result is None else [{"labels": "{}", "value": result}]
    query = {"expr": trigger["metadata"]["query"], "eval_time": "1m", "exp_samples": samples}
    inputs = [{"series": one, "values": f"{value:.0f}x4"} for one, value in series.items()]
    test = {"tests": [{"interval": "15s", "input_series": inputs, "promql_expr_test": [query]}]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test), encoding="utf-8")
    command = ["promtool", "test", "rules", str(tmp_path / "test.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_catalogue_of_the_nodes_is_valid_and_mounted_where_they_read_it(tmp_path: Path) -> None:
    found = charted(example("models"))
    ((file, catalogue),) = found["ConfigMap", "models"]["data"].items()
    (tmp_path / file).write_text(catalogue, encoding="utf-8")
    assert read_catalogue(tmp_path / file, WorkerSettings())
    ((_, specification, container),) = [pod for pod in pods(found) if pod[2]["name"] == "node"]
    (volume,) = (one["name"] for one in specification["volumes"] if "configMap" in one)
    (folder,) = (one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume)
    assert {"name": "VINOQUEUE_MODELS", "value": f"{folder}/{file}"} in container["env"]


def test_values_of_the_chart_reach_the_pods() -> None:
    more = {"VINOQUEUE_LOG_FORMAT": "json"}
    place = {"nodeSelector": {"disk": "fast"}, "imagePullSecrets": [{"name": "registry"}]}
    found = charted(
        {
            "settings": {"VINOQUEUE_DRAIN": "120"},
            "api": {"env": more, "pod": place, "files": {"accessMode": "ReadWriteOnce", "storageClassName": "fast"}},
            "workers": {"default-cpu": None, "own": {**WORKER, "env": more, "pod": place, "replicas": 0}},
        }
    )
    assert ("Deployment", "worker-default-cpu") not in found
    assert found["Deployment", "worker-own"]["spec"]["replicas"] == 0
    for name in ("api", "worker-own"):
        pod = found["Deployment", name]["spec"]["template"]["spec"]
        assert pod["terminationGracePeriodSeconds"] == 150
        assert place.items() <= pod.items()
        assert {"name": "VINOQUEUE_LOG_FORMAT", "value": "json"} in pod["containers"][0]["env"]
    claim = found["PersistentVolumeClaim", "files"]["spec"]
    assert (claim["accessModes"], claim["storageClassName"]) == (["ReadWriteOnce"], "fast")


def test_files_in_a_bucket_need_no_volume_and_take_credentials_from_a_secret() -> None:
    found = charted(example("full"))
    assert not of_kind(found, "PersistentVolumeClaim")
    pod = found["Deployment", "api"]["spec"]["template"]["spec"]
    assert "/files" not in {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert {"secretRef": {"name": "vinoqueue-s3"}} in pod["containers"][0]["envFrom"]
    assert found["NetworkPolicy", "from-api"]["spec"] == {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "vinoqueue", "app.kubernetes.io/component": "api"}},
        "policyTypes": ["Egress"],
        "egress": [{"ports": [{"protocol": "TCP", "port": 443}]}],
    }
    assert ("NetworkPolicy", "from-worker") not in found


@pytest.mark.parametrize("name", EXAMPLES)
def test_users_can_be_left_to_the_cluster(name: str) -> None:
    """OpenShift gives each namespace users of its own, and refuses pods that ask for others."""
    values = example(name)
    asked = {one["securityContext"].get("runAsUser") for _, one, _ in pods(charted(values))}
    assert asked >= {10001}
    values |= {"runAsUser": None, "store": {**values.get("store", {}), "runAsUser": None}}
    for _, specification, _ in pods(charted(values)):
        assert not specification["securityContext"].keys() & {"runAsUser", "runAsGroup", "fsGroup"}


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
        {"api": {"pod": {"securityContext": {}}}},
        {"workers": {"own": {**WORKER, "autoscaling": {"maxReplicas": 3}}}},
        {"nodes": {"models": {"chat": {}}}},
        {"nodes": {"autoscaling": {"maxReplicas": 3}}},
        {"store": {"maxmemory": "1Gi"}},
        {"runAsUser": 0},
        {"egress": {"store": []}},
    ],
    ids=str,
)
def test_wrong_values_of_the_chart_are_refused(wrong: dict[str, Any]) -> None:
    charted({"workers": {"own": WORKER}})
    with pytest.raises(ValueError, match="values don't meet the specifications of the schema"):
        charted(wrong)
