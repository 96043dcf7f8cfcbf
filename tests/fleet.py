"""Real processes for tests: a store, workers and API replicas, started and ended by the test that uses them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import openai

from bench import fleet as processes
from bench.fleet import PATIENCE, SIMULATED, Process, free_port

__all__ = ["PATIENCE", "SIMULATED", "Fleet", "Process", "fleet", "free_port"]


class Fleet(processes.Fleet):
    """One store with any number of workers and API replicas, and the clients that tests use."""

    def __init__(self, folder: Path, *store_options: str) -> None:
        super().__init__(folder, *store_options)
        self._clients: list[openai.OpenAI] = []

    def client(self) -> openai.OpenAI:
        """The official SDK, without its own retries; closed with the fleet at the latest."""
        client = openai.OpenAI(
            base_url=f"http://127.0.0.1:{self.port}/v1", api_key="none", max_retries=0, timeout=PATIENCE
        )
        self._clients.append(client)
        return client

    def stop(self) -> None:
        """Close the clients, end every process, then the store."""
        for client in self._clients:
            client.close()
        super().stop()


@contextmanager
def fleet(folder: Path, *store_options: str) -> Iterator[Fleet]:
    """A fleet that is ended with the block. ``store_options`` are Valkey's own."""
    running = Fleet(folder, *store_options)
    try:
        yield running
    finally:
        running.stop()
