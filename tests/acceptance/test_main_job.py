"""The main job on the real model: chats through HTTP, the queue and the engine, and back as they come."""

import asyncio
import http.client
import json
import os
import sys
from pathlib import Path
from typing import Any

import openai
import openvino_genai
import pytest

from faults.faults import ENGINE
from faults.processes import child
from shared.runtime.placement import cpus_for_others, own_cpus
from tests.acceptance.conftest import MODEL
from tests.support.fleet import ONE_THREAD, Fleet
from tests.support.processes import family
from worker.model.local import default_model
from worker.openvino.load import EXACT

QUESTIONS = [
    "What is the capital of France?",
    "Name three colours.",
    "Write a short poem about the sea.",
    "What is 2 + 2?",
    "Who wrote Hamlet?",
    "Give me a recipe for pancakes.",
    "Explain gravity to a child.",
    "What does a cat eat?",
    "Tell me about the moon.",
    "How do birds fly?",
    "List the days of the week.",
    "What is a prime number?",
    "Describe a forest in autumn.",
    "Why is the sky blue?",
    "Say hello in Spanish.",
    "用中文说你好",
]
TOKENS = 10


def chat(question: str) -> list[Any]:
    return [{"role": "user", "content": question}]


def ask(fleet: Fleet, question: str, **options: Any) -> str:
    answer = fleet.client().chat.completions.create(
        model=MODEL, messages=chat(question), temperature=0, max_tokens=TOKENS, **options
    )
    return answer.choices[0].message.content or ""


def ask_streamed(fleet: Fleet, question: str, **options: Any) -> list[str]:
    stream = fleet.client().chat.completions.create(
        model=MODEL, messages=chat(question), temperature=0, max_tokens=TOKENS, stream=True, **options
    )
    return [chunk.choices[0].delta.content for chunk in stream if chunk.choices and chunk.choices[0].delta.content]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


def cpus_of(pid: int) -> frozenset[int]:
    """The CPUs on which the threads of a process may run.

    While OpenVINO infers, it pins each thread to one of them, the first thread to the first CPU.
    """
    threads = map(int, os.listdir(f"/proc/{pid}/task"))
    return frozenset().union(*map(os.sched_getaffinity, threads))


def engine_numbers(fleet: Fleet) -> tuple[int, float]:
    """The requests that the pipeline itself holds, and the share of its KV cache in use."""
    (worker,) = fleet.workers()
    return worker.get("engine_requests", 0), worker.get("cache_usage", 0.0)


@pytest.fixture(scope="module")
def own_greedy_outputs() -> list[str]:
    """What the pipeline itself makes of the questions, without any of our code."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1
    pipeline = openvino_genai.ContinuousBatchingPipeline(str(default_model()), scheduler, "CPU", EXACT | ONE_THREAD)
    tokenizer = pipeline.get_tokenizer()
    config = openvino_genai.GenerationConfig(max_new_tokens=TOKENS, do_sample=False, apply_chat_template=False)
    prompts = [tokenizer.apply_chat_template(chat(question), add_generation_prompt=True) for question in QUESTIONS]
    ids = [tokenizer.encode(prompt, add_special_tokens=False).input_ids for prompt in prompts]
    results = pipeline.generate(ids, [config] * len(ids))
    return [tokenizer.decode(list(result.m_generation_ids[0])) for result in results]


def test_streamed_and_whole_answers_equal_the_pipelines_own(real_fleet: Fleet, own_greedy_outputs: list[str]) -> None:
    for question, expected in zip(QUESTIONS[:4], own_greedy_outputs, strict=False):
        assert ask(real_fleet, question) == expected
        assert "".join(ask_streamed(real_fleet, question)) == expected


async def test_sixteen_chats_at_once_each_get_their_own_words(real_fleet: Fleet, own_greedy_outputs: list[str]) -> None:
    client = openai.AsyncOpenAI(
        base_url=f"http://127.0.0.1:{real_fleet.port}/v1", api_key="none", max_retries=0, timeout=120
    )

    async def streamed(question: str) -> str:
        text = ""
        async for chunk in await client.chat.completions.create(
            model=MODEL, messages=chat(question), temperature=0, max_tokens=TOKENS, stream=True
        ):
            text += chunk.choices[0].delta.content or ""
        return text

    assert await asyncio.gather(*map(streamed, QUESTIONS)) == own_greedy_outputs
    await client.close()


def test_a_client_that_goes_away_frees_the_engine(real_fleet: Fleet) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", real_fleet.port)
    # A story that ends by itself might do so before the worker has reported that it is running.
    body = {"model": MODEL, "messages": chat("Tell me a very long story."), "max_tokens": 4000, "ignore_eos": True}
    connection.request("POST", "/v3/chat/completions", json.dumps(body), {"content-type": "application/json"})
    real_fleet.until(lambda: engine_numbers(real_fleet)[0] == 1, "the engine to hold the request")
    before = real_fleet.workers()[0]
    assert before["cache_usage"] > 0
    connection.close()
    real_fleet.until(lambda: engine_numbers(real_fleet) == (0, 0.0), "the engine to be empty")
    # It ended long before its 4,000 tokens.
    assert real_fleet.workers()[0]["tokens"] - before["tokens"] < 2000


def test_a_client_that_goes_away_in_prefill_frees_the_engine(real_fleet: Fleet) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", real_fleet.port)
    steps = real_fleet.workers()[0]["steps"]
    body = {"model": MODEL, "messages": chat("a long story " * 2300), "max_tokens": 500}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    real_fleet.until(
        lambda: [one.get("used", 0) for one in real_fleet.workers()] == [1], "the worker to take the request"
    )
    connection.close()
    real_fleet.until(lambda: engine_numbers(real_fleet) == (0, 0.0), "the engine to be empty")
    assert real_fleet.workers()[0]["steps"] - steps < 500


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the CPUs of a process")
def test_other_processes_leave_the_first_cpu_to_the_engine(real_fleet: Fleet) -> None:
    supervisor = real_fleet.workers()[0]["pid"]
    engine = child(supervisor, ENGINE)
    assert engine is not None
    others = set(family(supervisor)).difference({engine})
    assert cpus_of(engine) == own_cpus()
    kept_off = cpus_for_others(own_cpus())
    assert {command_of(pid): cpus_of(pid) for pid in others if cpus_of(pid) != kept_off} == {}
