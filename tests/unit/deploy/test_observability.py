"""The dashboard and the alert rules ask only for metrics, labels and kinds of problems that exist."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from api.chat.usage import FAILURES
from api.metrics.catalogue import CATALOGUE
from shared.protocol.errors import ProblemKind
from tests.support.paths import ROOT

RULES = ROOT / "deploy/prometheus/alerts.yaml"
DASHBOARD = json.loads((ROOT / "deploy/grafana/vinoqueue.json").read_text(encoding="utf-8"))
ALERTS: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]
]
LABELS = {
    name: set(metric.labels) | {"instance", "job"}
    for metric in CATALOGUE
    for name in (
        [f"{metric.name}{suffix}" for suffix in ("_bucket", "_sum", "_count")]
        if metric.kind == "histogram"
        else [metric.sample]
    )
}
"""The labels of each series."""


def dashboard_queries() -> Iterator[str]:
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]


QUERIES = [*dashboard_queries(), *(rule["expr"] for rule in ALERTS)]


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_names_series_and_labels_that_exist(query: str) -> None:
    names = set(re.findall(r"\bvinoqueue_\w+", query))
    assert names <= LABELS.keys()
    known = {label for name in names for label in LABELS[name]} | {"le", "instance", "job"}
    used = set(re.findall(r"(\w+)\s*=~?\s*\"", query))
    used |= {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
    assert used <= known
    for kinds in re.findall(r"(?:kind|outcome)=~\"([^\"]*)\"", query):
        assert set(kinds.split("|")) <= set(ProblemKind)


def test_the_runbook_explains_each_failure_that_has_an_alert() -> None:
    (rule,) = (rule for rule in ALERTS if rule["alert"] == "VinoqueueRequestsFail")
    assert set(re.findall(r"[a-z_]+(?=\||\")", rule["expr"].partition("outcome=~")[2].partition("}")[0])) == set(
        FAILURES
    )
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    section = page.partition("### VinoqueueRequestsFail\n")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", " ".join(rows))) == set(FAILURES)


def test_every_metric_of_the_service_is_on_the_dashboard() -> None:
    shown = set(re.findall(r"\bvinoqueue_\w+", " ".join(dashboard_queries())))
    missing = {
        metric.name
        for metric in CATALOGUE
        if metric.name.startswith("vinoqueue_")
        and not metric.optional
        and not any(name.startswith(metric.name) for name in shown)
    }
    assert missing <= {
        "vinoqueue_build_info",
        "vinoqueue_model_kind",
        "vinoqueue_worker_tokens",
        "vinoqueue_worker_requests",
    }


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_runbook_has_a_section_for_each_alert_and_for_no_other() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (Vinoqueue\w+)$", page, re.MULTILINE) == [rule["alert"] for rule in ALERTS]


def test_each_alert_is_tested_where_it_fires() -> None:
    tests = yaml.safe_load((RULES.parent / "alerts.test.yaml").read_text(encoding="utf-8"))["tests"]
    firing = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case["exp_alerts"]}
    assert firing == {rule["alert"] for rule in ALERTS}
