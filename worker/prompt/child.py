"""The prompt process: ``python -m worker.prompt.child '<PromptOptions as JSON>'``, started by the supervisor."""

import sys
from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Message, Tokenize
from worker.engine.backends import BACKENDS
from worker.processes.channel import serve
from worker.prompt.maker import PromptMaker
from worker.prompt.messages import Prepared, PromptOptions
from worker.prompt.template import ChatTemplateError
from worker.prompt.truncation import fit_prompt
from worker.prompt.turns import INSTRUCTION_ROLES


def _load(options: PromptOptions) -> Callable[[ChatRequest], Prepared]:
    try:
        maker: PromptMaker = resolve_name(BACKENDS[options.engine].prompt_maker)(options)
    except ChatTemplateError as error:
        origin = "given by --chat-template" if options.chat_template else f"of {options.path}"
        raise RuntimeError(f"{error} It is the one {origin}.") from error
    except Exception as error:
        raise RuntimeError(f"The tokenizer of {options.path} can't be loaded: {error}") from error

    def prepare(request: ChatRequest) -> Prepared:
        request = with_defaults(request, options.template_kwargs, options.system)
        check_size(request, options.schema_bytes)
        if isinstance(request.work, Tokenize):
            return _tokenize(maker, request, request.work)
        plan = maker.plan(request, minimums=True)
        counted = maker.plan(request) if any(limits.minimums for limits in plan.length_limits) else None
        bad_word_tokens = maker.bad_word_tokens(request.sampling.bad_words)
        prompt = fit_prompt(request, maker.prepare)
        return Prepared(prompt.tokens, plan, prompt.images, bad_word_tokens=bad_word_tokens, counted=counted)

    return prepare


def check_size(request: ChatRequest, max_bytes: int) -> None:
    """Raise :class:`RequestRefused` if a schema or grammar is larger than ``max_bytes`` bytes of UTF-8."""
    texts = [(request.constraint.param, request.constraint.value)] if request.constraint else []
    texts += [
        (f"tools[{index}].function.parameters", tool.parameters)
        for index, tool in enumerate(request.tools)
        if tool.parameters is not None
    ]
    for param, text in texts:
        size = len(text.encode())
        if size > max_bytes:
            raise refuse(
                ProblemKind.INVALID,
                f"Invalid '{param}': its schema or grammar has {size} bytes; this worker's maximum is {max_bytes}.",
                param=param,
            )


def _tokenize(maker: PromptMaker, request: ChatRequest, work: Tokenize) -> Prepared:
    if work.describe:
        return maker.description
    tokens, places = maker.encode(request, special=work.add_special_tokens)
    strings = tuple(map(maker.token_text, tokens)) if work.strings else ()
    text = maker.decode(tokens) if work.text else ""
    return Prepared(tokens, places=places, strings=strings, text=text)


_REASONING = frozenset({"reasoning_effort", "enable_thinking", "thinking"})
"""Variables that belong together: a client that sets one of them replaces all."""


def with_defaults(request: ChatRequest, variables: Mapping[str, Any], system: str) -> ChatRequest:
    """Return ``request`` with the variables of the chat template that it leaves out, and with ``system`` as its
    system message if it has none. A plain completion stays as it is."""
    if request.prompt is not None:
        return request
    messages = request.messages
    if system and not any(message.role in INSTRUCTION_ROLES for message in messages):
        messages = (Message(role="system", content=system), *messages)
    return msgspec.structs.replace(
        request, messages=messages, template_kwargs=_variables(request.template_kwargs, variables)
    )


def _variables(given: str | None, defaults: Mapping[str, Any]) -> str | None:
    if not defaults:
        return given
    try:
        own = msgspec.json.decode(given or "{}", type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return given  # refused by what reads it
    kept = {name: value for name, value in defaults.items() if not (name in _REASONING and _REASONING & own.keys())}
    return msgspec.json.encode(kept | own).decode()


if __name__ == "__main__":
    sys.exit(serve(PromptOptions, msgspec.msgpack.Decoder(ChatRequest), _load))
