"""The replica's parts that routes use, constructed once per process."""

from dataclasses import dataclass
from typing import cast

from arq.connections import ArqRedis
from quart import current_app

from api.admission import Admission
from api.completion_recovery import CompletionRecovery
from api.directory import Directory
from api.hosts import AllowedHosts
from api.keys import Keyring
from api.metrics import Metrics
from api.relay import Relay
from api.service import ChatService
from api.stored import CompletionStore
from shared.runtime.settings import ApiSettings

EXTENSION = "vinoqueue"


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of one API replica."""

    settings: ApiSettings
    replica: str
    redis: ArqRedis
    hosts: AllowedHosts
    relay: Relay
    directory: Directory
    keyring: Keyring
    admission: Admission
    service: ChatService
    stored: CompletionStore
    completion_recovery: CompletionRecovery
    metrics: Metrics


def context() -> Context:
    """Return the parts of the replica that serves the current request."""
    return cast(Context, current_app.extensions[EXTENSION])
