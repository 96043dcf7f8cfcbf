"""The prompt maker of the simulated engine: messages as plain lines, encoded with its own vocabulary."""

from shared.request import ChatRequest
from worker.engine.simulated_vocabulary import encode
from worker.prompt.maker import check_length


class SimulatedPromptMaker:
    """Writes each message as a ``role: content`` line, and ``assistant:`` at the end."""

    def __init__(self, *, context_length: int) -> None:
        """``context_length`` is in tokens."""
        self._context_length = context_length

    def prepare(self, request: ChatRequest) -> tuple[int, ...]:
        """Return the prompt's token ids. Raises :class:`shared.errors.RequestRefused` when they are too many."""
        if isinstance(request.prompt, tuple):
            ids = request.prompt
        elif request.prompt is not None:
            ids = encode(request.prompt)
        else:
            lines = [f"{message.role}: {message.content}\n" for message in request.messages]
            ids = encode("".join(lines) + "assistant:")
        check_length(request, len(ids), whole=True, context_length=self._context_length)
        return ids
