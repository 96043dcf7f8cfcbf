"""``vinoqueue status`` and ``vinoqueue health`` without a service."""

import json

import msgspec
from click.testing import CliRunner

from api.fleet.document import BatchState
from cli.main import main
from cli.monitor.health import reachable
from cli.monitor.status import QueueInfo, Snapshot, as_json_line, as_table
from shared.protocol.formats import ModelFormats
from shared.protocol.registry import DeclaredModel, NodeInfo, ReplicaInfo, WorkerInfo

NOBODY = "redis://127.0.0.1:1/0"

SNAPSHOT = Snapshot(
    nodes=[],
    workers=[
        WorkerInfo(
            id="node-1",
            host="node",
            pid=42,
            model="tiny",
            status="serving",
            engine="batched",
            device="GPU",
            fingerprint="fp",
            started=1000.0,
            slots=16,
            used=3,
            cache_usage=0.25,
            tokens_per_second=123.4,
            formats=ModelFormats(tool_parser="hermes", replaced=("tools_as_text", "turns_merged")),
        )
    ],
    queues=[QueueInfo(model="tiny", waiting=5, in_flight=3, workers=1)],
    replicas=[
        ReplicaInfo(id="replica-1", host="edge", pid=43, address="http://127.0.0.1:8000", started=1000.0, streams=3)
    ],
    batches=[
        BatchState(
            id="batch_1",
            status="in_progress",
            endpoint="/v1/chat/completions",
            model=None,
            created=1000,
            total=100,
            completed=40,
            failed=2,
        )
    ],
)


def test_the_memory_of_a_model_is_told_by_device() -> None:
    model = DeclaredModel(name="a", source="a", digest="d", memory=10**9, device_memory={"GPU.0": 3 * 10**9})
    node = NodeInfo(
        id="n", host="h", pid=1, started=1, memory=8 * 10**9, devices={"GPU.0": 16 * 10**9}, models=(model,)
    )
    text = as_table(msgspec.structs.replace(SNAPSHOT, nodes=[node]), now=1200.0)
    assert "1.0 of 8.0 GB, GPU.0 3.0 of 16.0 GB" in text


def test_the_table_tells_what_there_is() -> None:
    lines = [line.split() for line in as_table(SNAPSHOT, now=1200.0).splitlines()]
    assert ["node-1", "node", "42", "tiny", "GPU", "batched", "serving", "3/16", "123", "25%", "3m"] in lines
    assert ["tiny", "hermes", "none", "tools_as_text,", "turns_merged"] in lines
    assert ["tiny", "5", "3", "1"] in lines
    assert ["replica-1", "edge", "43", "http://127.0.0.1:8000", "3", "3m"] in lines
    assert ["batch_1", "in_progress", "42/100", "2", "-", "3m"] in lines


def test_the_table_tells_why_an_engine_has_one_slot() -> None:
    worker = msgspec.structs.replace(SNAPSHOT.workers[0], engine="stateful", engine_reason="an NPU")
    assert "GPU     stateful: an NPU  serving" in as_table(
        msgspec.structs.replace(SNAPSHOT, workers=[worker]), now=1200.0
    )


def test_an_empty_service_says_what_to_do() -> None:
    text = as_table(Snapshot(nodes=[], workers=[], queues=[], replicas=[], batches=[]), now=0.0)
    assert "vinoqueue worker" in text
    assert "No unfinished batches." in text


def test_json_has_every_field_also_where_it_is_the_default() -> None:
    found = json.loads(as_json_line(SNAPSHOT))
    assert set(found["workers"][0]) == set(WorkerInfo.__struct_fields__)
    assert set(found["replicas"][0]) == set(ReplicaInfo.__struct_fields__)
    assert found["workers"][0]["engine_restarts"] == 0
    assert set(found["batches"][0]) == set(BatchState.__struct_fields__)
    assert found["queues"] == [{"model": "tiny", "waiting": 5, "in_flight": 3, "workers": 1}]


def test_an_unreachable_store_is_one_clear_line_and_exit_code_1() -> None:
    for arguments in (["status"], ["status", "--json"]):
        outcome = CliRunner().invoke(main, [*arguments, "--redis-url", NOBODY])
        assert outcome.exit_code == 1
        assert outcome.stderr.startswith("Error: The store can't be reached")
        assert "--redis-url" in outcome.stderr
        assert outcome.stdout == ""


def test_an_api_that_does_not_answer_is_not_well() -> None:
    outcome = CliRunner().invoke(main, ["health", "api", "--port", "1"])
    assert outcome.exit_code == 1
    assert "port 1" in outcome.stderr


def test_a_server_on_every_address_is_reached_through_loopback() -> None:
    assert [reachable(host) for host in ("0.0.0.0", "::", "10.0.0.1")] == ["127.0.0.1", "::1", "10.0.0.1"]


def test_names_in_the_store_cannot_control_a_terminal() -> None:
    queue = QueueInfo(model="evil\x1b[2J\n", waiting=0, in_flight=0, workers=0)
    text = as_table(Snapshot(nodes=[], workers=[], queues=[queue], replicas=[], batches=[]), now=0.0)
    assert "\x1b" not in text
    assert "evil\\x1b[2J\\n" in text
