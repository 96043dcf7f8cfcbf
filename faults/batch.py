"""A batch that is under way while things fail: in the end, each of its lines has exactly one right result."""

import asyncio
import time
from collections import Counter, defaultdict
from contextlib import suppress

import openai
from openai.types import BatchUsage

from faults.prompts import PROMPTS, request_fields
from faults.service import Service
from tests.support.batches import CHAT, ENDED, results, submit

PATIENCE = 300.0
"""Seconds after the last fault in which the batch must end."""


class BatchUnderWay:
    """One batch of a service."""

    def __init__(self, service: Service, lines: int) -> None:
        self._service = service
        self._lines = lines
        self._id = ""
        self.usage: BatchUsage | None = None
        """The usage that the service has reported; None before its end."""

    async def submit(self) -> None:
        """Submit it."""
        prompts, tokens = PROMPTS[self._service.model], self._service.scenario.load.tokens
        lines = [
            {
                "custom_id": f"line-{number}",
                "method": "POST",
                "url": CHAT,
                "body": {
                    "model": self._service.model,
                    "temperature": 0,
                    **request_fields(self._service.model, prompts[number % len(prompts)], tokens),
                },
            }
            for number in range(self._lines)
        ]
        self._id = (await asyncio.to_thread(lambda: submit(self._client(), lines))).id

    async def complaints(self) -> list[str]:
        """Wait until it has ended; return what is wrong with its results."""
        status = await asyncio.to_thread(self._until_ended)
        return [f"batch: {one}" for one in await asyncio.to_thread(self._check, status)]

    def _until_ended(self) -> str:
        """Wait until it has ended; return its status."""
        end = time.monotonic() + PATIENCE
        while (status := self._status()) not in ENDED and time.monotonic() < end:
            time.sleep(0.5)
        return status

    def _status(self) -> str:
        with suppress(openai.APIConnectionError, openai.InternalServerError):
            return self._client().batches.retrieve(self._id).status
        return ""

    def _check(self, status: str) -> list[str]:
        client = self._client()
        batch = client.batches.retrieve(self._id)
        self.usage = batch.usage
        output, errors = results(client, batch.output_file_id), results(client, batch.error_file_id)
        wrong = [f"it is {status}"] if status != "completed" else []
        wrong += [f"{line['custom_id']} has the error {line}" for line in errors]
        times = Counter(line["custom_id"] for line in output + errors)
        wrong += [f"line-{n} has {times[f'line-{n}']} results" for n in range(self._lines) if times[f"line-{n}"] != 1]
        if extra := times.keys() - {f"line-{n}" for n in range(self._lines)}:
            wrong.append(f"there are results of {sorted(extra)[:5]}")
        counts = batch.request_counts
        if counts is None or (counts.total, counts.completed, counts.failed) != (self._lines, len(output), len(errors)):
            wrong.append(f"it counts {counts}, and has {len(output)} results and {len(errors)} errors")
        texts: defaultdict[int, set[str]] = defaultdict(set)
        for line in output:
            number = int(line["custom_id"].partition("-")[2]) % len(PROMPTS[self._service.model])
            texts[number].add(line["response"]["body"]["choices"][0]["message"]["content"])
        wrong += [f"the prompt {number} has {len(found)} texts" for number, found in texts.items() if len(found) != 1]
        return wrong

    def _client(self) -> openai.OpenAI:
        """A client of a replica that takes requests."""
        self._service.fleet.port = self._service.apis[0].port
        return self._service.fleet.client()
