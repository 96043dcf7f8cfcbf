"""The subprocess's side of a :class:`~worker.processes.service.Service`."""

import logging
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from worker.processes.channel import ChildChannel
from worker.processes.messages import Loaded, LoadFailed, Refused, Replied

Options = TypeVar("Options")
Call = TypeVar("Call")
Reply = TypeVar("Reply")

_log = logging.getLogger(__name__)


def serve(
    options: type[Options],
    decoder: msgspec.msgpack.Decoder[Call],
    load: Callable[[Options], Callable[[Call], Reply]],
) -> int:
    """Serve calls until the supervisor closes the channel. Returns the exit code.

    ``load`` returns the function that computes replies. It may raise :class:`RequestRefused`. An exception of ``load``
    is reported to the supervisor.
    """
    channel: ChildChannel[Call, Replied[Reply] | Refused | Loaded | LoadFailed]
    channel = ChildChannel.inherited(decoder)
    try:
        compute = load(msgspec.json.decode(sys.argv[1], type=options))
    except Exception as error:
        channel.send(LoadFailed(str(error)))
        return 1
    channel.send(Loaded())

    def reply(message: Call) -> Replied[Reply] | Refused:
        began = time.process_time()
        try:
            body = compute(message)
        except RequestRefused as refusal:
            problem = refusal.problem
        except Exception as error:
            # An unexpected error in one call must not end the process.
            _log.exception("a call failed")
            text = f"The worker failed at this request: {type(error).__name__}."
            problem = Problem(kind=ProblemKind.INTERNAL, message=text)
        else:
            return Replied(body, time.process_time() - began)
        return Refused(problem, time.process_time() - began)

    channel.serve(reply)
    return 0
