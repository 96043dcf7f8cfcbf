"""What is logged of a request that engines died of."""

import json

from shared.protocol.request import ChatRequest, Constraint, Job, Message, ResponseForm, Sampling, Tool
from worker.jobs.payload import full_request, summary

SECRETS = ("my diary", "secret schema", "secret stop", "secret word", "secret tool", "secret data")
JOB = Job(
    id="j1",
    reply_to="api-1",
    tenant="key-7",
    request=ChatRequest(
        model="tiny",
        messages=(Message(role="user", content="my diary\nis long"),),
        sampling=Sampling(temperature=0.5, stop=("secret stop", "another"), bad_words=("secret word",)),
        tools=(Tool(name="secret tool"),),
        constraint=Constraint(kind="json_schema", value='{"title": "secret schema"}'),
        response=ResponseForm(metadata=(("key", "secret data"),)),
    ),
)


def test_the_summary_has_sizes_and_settings_and_no_text() -> None:
    line = summary(JOB)
    assert not any(secret in line for secret in SECRETS)
    for part in (
        "tiny",
        "key-7",
        "Generate",
        "1 messages",
        "about 8 tokens",
        "1 tools",
        '"temperature":0.5',
        '"stop":2',
    ):
        assert part in line
    assert "json_schema of 26 characters" in line


def test_a_plain_completion_is_told_too() -> None:
    job = Job(id="j1", reply_to="api-1", request=ChatRequest(model="tiny", prompts=("my diary",)))
    assert "1 prompts, about 2 tokens" in summary(job)


def test_the_whole_request_is_one_line_of_json() -> None:
    line = full_request(JOB)
    assert "\n" not in line
    assert json.loads(line)["messages"][0]["content"] == "my diary\nis long"
    assert all(secret in line for secret in SECRETS)
