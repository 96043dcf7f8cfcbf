"""The prompt maker of the simulated engine: messages as plain lines, in the simulated vocabulary."""

from collections.abc import Sequence

import msgspec

from shared.parsers.formats import OutputFormat, ReasoningFormatName
from shared.protocol.formats import ModelFormats
from shared.protocol.request import ChatRequest
from worker.grammar.plan import Plan
from worker.grammar.planner import make_plan, plain_plan
from worker.prompt.maker import Prompt, check_length
from worker.prompt.messages import Prepared, PromptOptions
from worker.simulated.engine import decode, encode


def load_prompt_maker(options: PromptOptions) -> "SimulatedPromptMaker":
    """Return the prompt maker, which uses neither files nor templates, has nothing to test, and is not for NPUs."""
    return SimulatedPromptMaker(context_length=options.context_length)


class SimulatedPromptMaker:
    """Renders each message as a ``role: content`` line, followed by ``assistant:`` unless the last one goes on."""

    description = Prepared((), strings=("", ""), formats=ModelFormats(tool_parser="hermes", reasoning_parser="think"))

    def __init__(self, *, context_length: int) -> None:
        """``context_length`` is in tokens."""
        self._context_length = context_length

    def prepare(self, request: ChatRequest) -> Prompt:
        """Return the prompt. Raises :class:`RequestRefused` when it is too long."""
        prompt = self.encode(request, special=True)
        check_length(request, len(prompt.tokens), complete=True, context_length=self._context_length)
        return prompt

    def encode(self, request: ChatRequest, *, special: bool) -> Prompt:
        """Return the prompt, with images after all text. There are no special tokens."""
        if isinstance(request.prompt, tuple):
            ids = request.prompt
        elif request.prompt is not None:
            ids = encode(request.prompt)
        else:
            text = "".join(f"{message.role}: {message.content}\n" for message in request.messages)
            ids = encode(text.removesuffix("\n") if request.turn == "continued" else text + "assistant:")
        images = range(sum(len(message.images) for message in request.messages))
        return Prompt(ids, tuple((number, len(ids)) for number in images))

    def bad_word_tokens(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        return tuple(map(encode, words))

    def token_text(self, token: int) -> str:
        return decode((token,))

    def decode(self, tokens: tuple[int, ...]) -> str:
        return decode(tokens)

    def plan(self, request: ChatRequest, *, minimums: bool = False) -> Plan:
        """Return the plan of a model with hermes tool calls, and with reasoning if the client requests it.

        Template variables in the request, which ``reasoning_effort`` sets, count as such a request. Optional tool
        calls put no constraint on the output, because the simulated engine supports no grammars.
        """
        if request.prompt is not None:
            return plain_plan(request, minimums=minimums)
        reasoning: ReasoningFormatName | None = "think" if request.template_kwargs else None
        plan = make_plan(request, OutputFormat(tools="hermes", reasoning=reasoning), "", minimums=minimums)
        free = request.constraint is None and request.tool_choice != "required" and request.named_tool is None
        return msgspec.structs.replace(plan, grammar=None) if free else plan
