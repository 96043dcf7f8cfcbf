"""A real Prometheus scrapes a replica, and evaluates the queries of the dashboard and the alert rules."""

import json
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from shared.runtime.processes import die_with_parent
from tests.support.eventually import PATIENCE, wait_until
from tests.support.fleet import SIMULATED, Fleet, free_port
from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="needs Prometheus: apt install --no-install-recommends prometheus"
)

RULES = ROOT / "deploy/prometheus/alerts.yaml"
BODY = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 5})


class Prometheus:
    """A Prometheus server."""

    def __init__(self, port: int) -> None:
        self.port = port

    def get(self, path: str, **query: str) -> Any:
        """Return the data of a successful reply to an API request; None while the server starts."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{query}: {error.read().decode()}") from None
        except OSError:
            return None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        data = self.get("query", query=expression)
        return [] if data is None else list(data["result"])

    def alerts(self) -> dict[str, dict[str, str]]:
        """Return the labels of the alerts that fire, by name."""
        data = self.get("alerts")
        return {one["labels"]["alertname"]: one["labels"] for one in data["alerts"]} if data is not None else {}


@pytest.fixture
def prometheus(small_fleet: Fleet, tmp_path: Path) -> Iterator[Prometheus]:
    """A Prometheus with this project's configuration that scrapes the fleet's replica. Alerts fire at once."""
    configuration = yaml.safe_load((RULES.parent / "prometheus.yaml").read_text(encoding="utf-8"))
    configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)
    (tmp_path / "alerts.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    configuration["rule_files"] = [str(tmp_path / "alerts.yaml")]
    (job,) = configuration["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{small_fleet.port}"]}]
    file, port = tmp_path / "prometheus.yaml", free_port()
    file.write_text(yaml.safe_dump(configuration), encoding="utf-8")
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={file}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                "--enable-feature=exemplar-storage",  # as in compose.yaml
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
            preexec_fn=die_with_parent,
        )
    try:
        yield Prometheus(port)
    finally:
        server.terminate()
        server.wait(PATIENCE)


def test_prometheus_scrapes_a_replica_and_evaluates_all_queries(small_fleet: Fleet, prometheus: Prometheus) -> None:
    fleet = small_fleet
    headers = {"content-type": "application/json"}
    assert fleet.request("POST", "/v1/chat/completions", BODY, headers)[0] == 200
    wait_until(
        lambda: prometheus.query('vinoqueue_requests_total{job="vinoqueue", model="sim", outcome="length"} == 1'),
        "the request to be counted",
    )
    (target,) = prometheus.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    now = time.time()
    (found,) = prometheus.get(
        "query_exemplars", query="vinoqueue_request_duration_seconds_bucket", start=str(now - 60), end=str(now + 60)
    )
    assert found["exemplars"][0]["labels"]["job"] in fleet.logs()
    dashboard = json.loads((ROOT / "deploy/grafana/vinoqueue.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for query in panel.get("targets", ()):
            prometheus.query(query["expr"].replace("$__rate_interval", "1m").replace("$model", ".*"))
    wait_until(
        lambda: all(rule["health"] == "ok" for group in prometheus.get("rules")["groups"] for rule in group["rules"]),
        "all rules to be evaluated",
    )
    assert len(prometheus.query('vinoqueue_workers{status="serving"} > 0')) == 1
    assert prometheus.query("vinoqueue_queue_wait_seconds_count == 1")


def test_alerts_fire_when_a_worker_and_then_everything_dies(small_fleet: Fleet, prometheus: Prometheus) -> None:
    fleet = small_fleet
    wait_until(
        lambda: prometheus.query("vinoqueue_workers == 1") and not prometheus.alerts(), "the worker, and no alert"
    )
    (first,) = (process for process in fleet.processes if process.arguments[0] == "worker")
    body = json.dumps({"model": "sim", "messages": [{"role": "user", "content": "[[tokens 1000]]"}]})
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(fleet.request("POST", "/v1/chat/completions", body)[0]))
    asking.start()
    fleet.until(lambda: any(worker.get("used") for worker in fleet.workers()), "the request to run")
    first.kill()
    second = fleet.worker(*SIMULATED)
    asking.join()
    assert answers == [200]
    wait_until(lambda: "VinoqueueWorkersLost" in prometheus.alerts(), "the alert on the lost worker")
    second.kill()
    wait_until(lambda: prometheus.alerts().get("VinoqueueNoWorker", {}).get("model") == "sim", "the alert on the model")
    wait_until(lambda: "VinoqueueNotReady" in prometheus.alerts(), "the alert on readiness")
    assert "VinoqueueNoReplica" not in prometheus.alerts()
    fleet.processes[1].kill()
    wait_until(lambda: {"VinoqueueNoReplica", "VinoqueueReplicaDown"} <= prometheus.alerts().keys(), "the last alerts")


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yaml"),
        ("check", "config", "prometheus.yaml"),
        ("test", "rules", "alerts.test.yaml"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_promtool_accepts_rules_and_configuration(arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=RULES.parent, capture_output=True, text=True, check=False, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stdout + done.stderr
