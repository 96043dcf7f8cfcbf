"""The metrics page: what it counts, and that it has what its catalogue declares, and no more."""

import dataclasses

import msgspec
import pytest
from arq.connections import ArqRedis
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from api.build import Parts, build
from api.metrics.catalogue import CATALOGUE, VLLM_LORA
from api.metrics.histogram import BUCKETS, LatencyHistogram
from shared.protocol.errors import ProblemKind
from shared.protocol.events import Delta, Started, encode_event, encode_frame, entry_head
from shared.protocol.registry import DeclaredModel, ModelInfo, NodeInfo, announce
from shared.runtime.settings import ApiSettings
from shared.runtime.version import VERSION
from tests.support.answers import ResponseStream, UsageRecorder
from tests.support.jobs import WORKER
from tests.support.paths import ROOT
from tools.docs.metrics_table import inserted

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
async def replica(redis: ArqRedis) -> Parts:
    await announce(redis, msgspec.structs.replace(WORKER, cache_tokens=640, cache_usage=0.5), lease=60)
    replica = build(redis, ApiSettings(metrics_by_key=True), "r")
    await replica.directory.refresh()
    return replica


def samples(replica: Parts) -> Samples:
    families = text_string_to_metric_families(replica.metrics.page()[0].decode())
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def value(replica: Parts, name: str, **labels: str) -> float | None:
    return samples(replica).get((name, frozenset(labels.items())))


def ended(*started: Started, queued: float | None) -> tuple[ResponseStream, UsageRecorder]:
    """A request with these started events, and its record."""
    usage = UsageRecorder()
    usage.queued = queued
    stream = ResponseStream(["a"], WORKER.model)
    for event in started:
        stream.choices[0].push(event.attempt, event)
        usage.started(0, event)
    return stream, usage


def test_the_documentation_is_current() -> None:
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert inserted(page) == page, "run 'make docs'"


async def test_the_page_has_what_the_catalogue_declares_and_no_more(replica: Parts) -> None:
    replica.chat.metrics.record(*ended(Started("w", 3, "fp", attempt=1), queued=0.0))
    replica.chat.metrics.refused(ProblemKind.QUEUE_FULL)
    described = {f"{one.name}": one for one in CATALOGUE}
    found = {family.name: family for family in text_string_to_metric_families(replica.metrics.page()[0].decode())}
    assert found.keys() == described.keys()
    for name, family in found.items():
        assert family.type == described[name].kind
        own = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert own <= set(described[name].labels)


async def test_series_of_batches_images_and_prefixes_begin_at_zero(replica: Parts) -> None:
    model = ModelInfo(name="tiny", created=0, context_length=1)
    replica.directory.fleet = dataclasses.replace(replica.directory.fleet, models={"tiny": model})
    lines = set(replica.metrics.page()[0].decode().splitlines())
    assert {
        'vinoqueue_batch_lines_total{outcome="failed"} 0.0',
        'vinoqueue_ended_batches_total{status="expired"} 0.0',
        'vinoqueue_image_failures_total{source="download"} 0.0',
        'vinoqueue_prefix_routed_jobs_total{model="tiny",route="diverted"} 0.0',
        f'vinoqueue_build_info{{version="{VERSION}"}} 1.0',
    } <= lines


async def test_clients_that_accept_openmetrics_get_it_with_the_jobs_of_recent_requests(replica: Parts) -> None:
    replica.chat.metrics.record(*ended(Started("w", 3, "fp", attempt=1), queued=0.0), timed=True)
    page, content_type = replica.metrics.page("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert content_type.startswith("application/openmetrics-text")
    families = openmetrics.text_string_to_metric_families(page.decode())  # type: ignore[no-untyped-call]
    found = {family.name: family for family in families}
    assert found.keys() >= {"vinoqueue_requests", "vinoqueue_inter_token_latency_seconds"}
    exemplars = [one.exemplar for one in found["vinoqueue_queue_wait_seconds"].samples if one.exemplar]
    assert [one.labels for one in exemplars] == [{"job": "a"}]
    assert replica.metrics.page()[1].startswith("text/plain")


async def test_the_wait_in_the_queue_is_what_the_worker_did_not_need(
    replica: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    first = Started("w", 3, "fp", cached_tokens=2, attempt=1, prompt_seconds=0.5, prefill_seconds=1.5)
    replica.chat.metrics.record(*ended(first, queued=90.0))
    for phase, seconds in (("queue_wait", 8.0), ("prompt", 0.5), ("prefill", 1.5)):
        assert value(replica, f"vinoqueue_{phase}_seconds_sum", model="tiny") == seconds
    assert value(replica, "vinoqueue_cached_prompt_tokens_total", model="tiny") == 2


async def test_the_wait_is_unknown_if_the_worker_is_older_or_the_replica_did_not_queue_the_request(
    replica: Parts,
) -> None:
    replica.chat.metrics.record(*ended(Started("w", 3, "fp"), queued=1.0))
    replica.chat.metrics.record(*ended(Started("w", 3, "fp", attempt=1), queued=None))
    assert value(replica, "vinoqueue_queue_wait_seconds_count", model="tiny") is None


async def test_counters_of_alerts_begin_at_zero(replica: Parts) -> None:
    """Prometheus sees no increase in a series that begins at 1."""
    assert value(replica, "vinoqueue_migrations_total", model="tiny", reason="worker_lost") == 0
    assert value(replica, "vinoqueue_requests_total", model="tiny", outcome="engine_failed") == 0
    assert value(replica, "vinoqueue_requests_total", model="tiny", outcome="stop") is None
    replica.chat.metrics.record(*ended(Started("w", 3, "fp", attempt=2, cause="worker_lost"), queued=None))
    assert value(replica, "vinoqueue_migrations_total", model="tiny", reason="worker_lost") == 1


async def test_each_migration_is_counted_once_with_its_reason(replica: Parts) -> None:
    second = Started("w2", 3, "fp", attempt=2, cause="worker_lost")
    third = Started("w3", 3, "fp", attempt=3, cause="<odd>")
    stream, usage = ended(Started("w1", 3, "fp", attempt=1), second, queued=None)
    # The journal repeats the events, and has one that was lost on its way.
    stream.choices[0].hold()
    stream.choices[0].fill([Started("w1", 3, "fp", attempt=1), second, third])
    replica.chat.metrics.record(stream, usage)
    assert value(replica, "vinoqueue_migrations_total", model="tiny", reason="worker_lost") == 1
    assert value(replica, "vinoqueue_migrations_total", model="tiny", reason="unknown") == 1


async def test_the_times_between_tokens_are_those_of_each_choice(
    replica: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    stream = ResponseStream(["a", "b"], "tiny")
    replica.relay.open(stream)
    for position in range(3):
        entries = [
            part for job in ("a", "b") for part in (entry_head(job, 1), encode_event(Delta(position, (7,), "x")))
        ]
        if position == 0:
            started = [
                part
                for job in ("a", "b")
                for part in (entry_head(job, 1), encode_event(Started("w", 3, "fp", attempt=1)))
            ]
            entries = started + entries
        replica.relay.route(encode_frame(entries))
        now += 0.3
    name = "vinoqueue_inter_token_latency_seconds"
    assert value(replica, f"{name}_count", model="tiny") == 4
    assert value(replica, f"{name}_sum", model="tiny") == pytest.approx(1.2)
    assert value(replica, f"{name}_bucket", model="tiny", le="0.2") == 0
    assert value(replica, f"{name}_bucket", model="tiny", le="0.5") == 4


async def test_choices_in_one_frame_may_have_had_their_last_tokens_at_different_times(
    replica: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    replica.relay.open(ResponseStream(["a", "b", "c"], "tiny"))
    for jobs in ("ab", "c", "abc"):
        replica.relay.route(
            encode_frame([part for job in jobs for part in (entry_head(job, 0), encode_event(Delta(0, (7,), "x")))])
        )
        now += 0.3
    name = "vinoqueue_inter_token_latency_seconds"
    assert value(replica, f"{name}_count", model="tiny") == 3
    assert value(replica, f"{name}_sum", model="tiny") == pytest.approx(0.6 + 0.6 + 0.3)
    assert value(replica, f"{name}_bucket", model="tiny", le="0.5") == 1


def test_buckets_are_cumulative_and_include_their_bounds() -> None:
    histogram = LatencyHistogram()
    for seconds in (0.0005, 0.001, 600, 601):
        histogram.observe("x", seconds)
    ((label, buckets, total),) = histogram.read()
    assert label == "x"
    assert total == pytest.approx(1201.0015)
    assert (buckets[0], buckets[1], buckets[-2], buckets[-1]) == (
        ("0.001", 2),
        ("0.002", 2),
        ("600.0", 3),
        ("+Inf", 4),
    )
    assert (BUCKETS[0], BUCKETS[-1]) == (0.001, 600)


async def test_models_have_a_count_of_workers_for_each_status(replica: Parts) -> None:
    assert value(replica, "vinoqueue_workers", model=WORKER.model, status="serving") == 1
    assert value(replica, "vinoqueue_workers", model=WORKER.model, status="failing") == 0


async def test_vllms_names_describe_the_serving_workers(replica: Parts) -> None:
    assert value(replica, "vllm:num_requests_waiting", model_name=WORKER.model) == 0
    assert value(replica, "vllm:num_requests_running", model_name=WORKER.model) == 0
    assert value(replica, "vllm:kv_cache_usage_perc", model_name=WORKER.model) == 0.5
    labels = {"model_name": WORKER.model, "block_size": "32", "num_gpu_blocks": "20"}
    assert value(replica, "vllm:cache_config_info", **labels) == 1
    assert value(replica, VLLM_LORA.name, max_lora="0", running_lora_adapters="", waiting_lora_adapters="")


async def test_nodes_are_counted_by_model_and_cause(redis: ArqRedis, replica: Parts) -> None:
    model = DeclaredModel(name="large", source="x", digest="d", status="loaded", memory=5, loads=2, waited=3.5)
    model = msgspec.structs.replace(model, unloads={"swap": 1}, device_memory={"GPU.0": 3})
    node = NodeInfo(id="n", host="h", pid=1, started=1, memory=9, devices={"GPU.0": 4}, models=(model,))
    await announce(redis, node, lease=60)
    await replica.directory.refresh()
    where = {"node": "n", "model": "large"}
    for device, size, taken in (("host", 9, 5), ("GPU.0", 4, 3)):
        assert value(replica, "vinoqueue_node_memory_bytes", node="n", device=device) == size
        assert value(replica, "vinoqueue_model_memory_bytes", **where, device=device) == taken
    assert value(replica, "vinoqueue_model_loads_total", **where) == 2
    assert value(replica, "vinoqueue_model_unloads_total", **where, cause="swap") == 1
    assert value(replica, "vinoqueue_model_unloads_total", **where, cause="idle") == 0
    assert value(replica, "vinoqueue_model_state", model="large", state="loaded") == 1
    assert value(replica, "vinoqueue_model_wait_seconds", model="large") == 3.5
