"""What the routes need, made once for each replica."""

from dataclasses import dataclass
from typing import cast

from arq.connections import ArqRedis
from quart import current_app

from api.directory import Directory
from api.metrics import Metrics
from api.relay import Relay
from api.service import ChatService
from shared.settings import ApiSettings

EXTENSION = "vinoqueue"


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of one API replica."""

    settings: ApiSettings
    replica: str
    redis: ArqRedis
    relay: Relay
    directory: Directory
    service: ChatService
    metrics: Metrics


def context() -> Context:
    """The parts of the replica that serves the current request."""
    return cast(Context, current_app.extensions[EXTENSION])
