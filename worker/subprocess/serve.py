"""The subprocess's side of a :class:`~worker.subprocess.service.Service`."""

import logging
import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec

from shared.protocol.errors import ProblemKind, RequestRefused, refuse
from worker.subprocess.channel import ChildChannel
from worker.subprocess.messages import Loaded, LoadFailed, Refused, Replied

Options = TypeVar("Options")
Call = TypeVar("Call")
Reply = TypeVar("Reply")

_log = logging.getLogger(__name__)


def serve(options: type[Options], call: type[Call], load: Callable[[Options], Callable[[Call], Reply]]) -> int:
    """Serve calls until the supervisor closes the channel. Returns the exit code.

    ``load`` returns the function that computes replies. It may raise :class:`RequestRefused`. An exception of ``load``
    is reported to the supervisor.
    """
    channel: ChildChannel[Call, Replied[Reply] | Refused | Loaded | LoadFailed]
    channel = ChildChannel.inherited(msgspec.msgpack.Decoder(call))
    try:
        compute = load(msgspec.json.decode(sys.argv[1], type=options))
    except Exception as error:
        channel.send(LoadFailed(str(error)))
        return 1
    channel.send(Loaded())

    def reply(message: Call) -> Replied[Reply] | Refused:
        try:
            return Replied(compute(message))
        except RequestRefused as refusal:
            return Refused(refusal.problem)
        except Exception as error:
            # An unexpected error in one call must not end the process.
            _log.exception("a call failed")
            text = f"The worker failed at this request: {type(error).__name__}."
            return Refused(refuse(ProblemKind.INTERNAL, text).problem)

    channel.serve(reply)
    return 0
