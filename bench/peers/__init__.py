"""What a user might run instead of this service: each installed and started by a module of its own."""

from pathlib import Path
from typing import Protocol

from bench.peers.environment import Environment
from bench.peers.llama_cpp import LlamaCpp
from bench.peers.server import Server


class Peer(Protocol):
    """Another server for the same model."""

    name: str
    environment: Environment

    def start(self, model: Path, slots: int, folder: Path) -> Server:
        """Serve the GGUF file ``model`` to ``slots`` clients at once, with its files in ``folder``.

        Raises :class:`~bench.peers.environment.Unavailable` when that can't be.
        """


PEERS: tuple[Peer, ...] = (LlamaCpp(), LlamaCpp("Q4_0"))
