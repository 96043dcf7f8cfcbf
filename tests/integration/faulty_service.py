"""A service that does what a word in its call says: hang, crash, crash once, fail, refuse, spend CPU time."""

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from worker.processes.channel import serve

MODULE = "tests.integration.faulty_service"


class FaultyOptions(msgspec.Struct, frozen=True):
    """Options of the service.

    ``path`` is a folder, in which the service logs its calls. If it does not exist, the service can't be loaded. The
    file "interruptions" in it says how many replacements of a crashed process die while they load. ``replies`` are the
    replies to calls with a word; any other gets itself as its reply.
    """

    path: str
    replies: dict[str, Any] = {}


def _load(options: FaultyOptions) -> Callable[[Any], Any]:
    folder = Path(options.path)
    if not folder.exists():
        raise FileNotFoundError("no such folder")
    crashed, interruptions = folder / "crashed", folder / "interruptions"
    if crashed.exists() and interruptions.exists() and (left := int(interruptions.read_text())):
        interruptions.write_text(str(left - 1))
        os._exit(3)

    def reply(call: Any) -> Any:
        text = repr(call)
        with (folder / "calls").open("a") as log:
            log.write(text + "\n")
        if "hang" in text:
            threading.Event().wait()
        if "crash" in text and not ("crash once" in text and crashed.exists()):
            crashed.touch()
            os._exit(3)
        if "spend" in text:
            began = time.process_time()
            while time.process_time() < began + 0.05:
                pass
        if "fail" in text:
            raise ValueError(text)
        if "refuse" in text:
            raise refuse(ProblemKind.INVALID, "There is no rule 'root'")
        return next((reply for word, reply in options.replies.items() if word in text), call)

    return reply


if __name__ == "__main__":
    sys.exit(serve(FaultyOptions, msgspec.msgpack.Decoder(), _load))
