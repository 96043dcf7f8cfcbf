"""Prompt makers: convert a request's messages or plain prompt to token ids that fit the context."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple, Protocol

import msgspec

from shared.parsers.formats import AUTO, REASONING_FORMATS, OutputFormat
from shared.protocol.errors import ContextExcess, ProblemKind, context_exceeded, refuse
from shared.protocol.request import ChatRequest
from worker.engine.checks import check_prompt
from worker.grammar.plan import Plan
from worker.grammar.planner import make_plan, plain_plan
from worker.grammar.spelling import spellable_plan
from worker.prompt.conversation import Sanitize, render
from worker.prompt.facts import TemplateFacts
from worker.prompt.messages import Prepared
from worker.prompt.probe import probe
from worker.prompt.specials import Piece, SpecialTexts
from worker.prompt.template import ChatTemplate, ChatTemplateError
from worker.prompt.tokenize import Decode, Encoder, RawEncode

_MAX_COUNTED = 1 << 18
"""Maximum number of tokens of an overlong prompt that are counted, which takes about 0.1 s."""

_LAST_PIECES = 8
"""Number of trailing pieces of a rendered prompt that are searched for reasoning markers."""


class Prompt(NamedTuple):
    """Token ids, and the images among them: the number of each in the request, and how many tokens are before it."""

    tokens: tuple[int, ...]
    images: tuple[tuple[int, int], ...] = ()


class PromptMaker(Protocol):
    """Converts requests to token ids and output plans."""

    description: Prepared
    """The tokenizer: the texts of BOS and EOS, the chat template, what it does, and what the self-test has found."""

    def prepare(self, request: ChatRequest) -> Prompt:
        """Return the prompt. Raises :class:`RequestRefused` when it can't be served."""

    def encode(self, request: ChatRequest, *, special: bool) -> Prompt:
        """Return the prompt, however long. ``special``: whether it begins with tokens such as BOS.

        Raises :class:`RequestRefused`.
        """

    def plan(self, request: ChatRequest, *, minimums: bool = False) -> Plan:
        """Return the plan for the output. Raises :class:`RequestRefused` when the output format is unsupported.

        ``minimums`` is as in :func:`~worker.grammar.planner.make_plan`.
        """

    def bad_word_tokens(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Return the tokens of each word, at the start of a text and after a space."""

    def token_text(self, token: int) -> str:
        """Return the text of a token of a prepared prompt."""

    def decode(self, tokens: tuple[int, ...]) -> str:
        """Return the text of the tokens of a prepared prompt, with special tokens."""


class Chat(NamedTuple):
    """A chat template, and what it does."""

    template: ChatTemplate
    facts: TemplateFacts


class TemplatePromptMaker:
    """Renders messages with a model's chat template and encodes them with its tokenizer."""

    def __init__(
        self,
        *,
        encode: RawEncode,
        decode: Decode = lambda tokens: "",
        pieces: Sequence[bytes] = (),
        template: ChatTemplate | None,
        tool_template: ChatTemplate | None = None,
        parsers: tuple[str, str] = (AUTO, AUTO),
        special_texts: SpecialTexts,
        bos_tokens: tuple[int, ...],
        vocabulary_size: int,
        context_length: int,
        max_prompt: int = 0,
        special_ids: Mapping[str, int] | None = None,
        missing_bytes: frozenset[int] = frozenset(),
        boundaries: tuple[str, str] = ("", ""),
    ) -> None:
        """``decode`` returns the text of token ids, ``pieces`` are the bytes of each token.

        ``template`` is None for a model without one, ``tool_template`` for one that has none of its own for requests
        with tools. ``parsers`` are those of tool calls and of reasoning (see :func:`~worker.prompt.probe.probe`).
        ``bos_tokens`` are the ids at the start of every plain prompt.

        ``special_ids`` maps special texts to token ids. ``missing_bytes`` are the bytes without a token,
        ``boundaries`` the texts of BOS and EOS.
        """
        self._encoder = Encoder(encode, special_texts)
        self._encode, self._decode = encode, decode
        self._token_pieces = pieces
        self._chat, self._tool_chat = (
            Chat(source, probe(source, special_ids or (), *parsers)) if source else None
            for source in (template, tool_template)
        )
        self.chats = tuple(filter(None, (self._chat, self._tool_chat)))
        chat = self._tool_chat or self._chat
        source, formats = template.source if template else "", chat.facts.formats if chat else None
        self.description = Prepared((), strings=boundaries, text=source, formats=formats)
        self._specials = special_texts
        self._bos_tokens = bos_tokens
        self._vocabulary_size = vocabulary_size
        self._context_length, self._max_prompt = context_length, max_prompt
        self._special_ids = special_ids or {}
        self._missing_bytes = missing_bytes

    def bad_word_tokens(self, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
        """Return the tokens of each word, also after a space if that is part of a token, as vLLM does."""
        found: dict[tuple[int, ...], None] = {}
        for word in words:
            bare, spaced = (tuple(ids) for ids in self._encode([word.lstrip(), f" {word.lstrip()}"]))
            found |= dict.fromkeys([bare] if bare else [])
            if bare and spaced and spaced[0] != bare[0] and len(spaced) == len(bare):
                found[spaced] = None
        return tuple(found)

    def token_text(self, token: int) -> str:
        return self._token_pieces[token].decode(errors="replace")

    def decode(self, tokens: tuple[int, ...]) -> str:
        return self._decode(tokens) if tokens else ""

    def plan(self, request: ChatRequest, *, minimums: bool = False) -> Plan:
        """Return the constraint and the output format, which follow from the request and the chat template."""
        return spellable_plan(self._plan(request, minimums=minimums), request, self._missing_bytes)

    def _plan(self, request: ChatRequest, *, minimums: bool) -> Plan:
        if request.prompt is not None:
            return plain_plan(request, minimums=minimums)
        # The end of the prompt matters only for reasoning formats.
        chat = self._chat_for(request)
        output = chat.facts.output if chat else OutputFormat()
        prompt_end = self._rendered_end(request) if output.reasoning else ""
        plan = make_plan(request, output, prompt_end, minimums=minimums)
        if not (plan.tools or plan.reasoning):
            return plan
        if output.reasoning:
            end, _ = self._encoder.encode([REASONING_FORMATS[output.reasoning].end], limit=_MAX_COUNTED, at_start=False)
            plan = msgspec.structs.replace(plan, reasoning_end=tuple(end))
        markers = output.special_tokens()
        shown = tuple(sorted(token for text, token in self._special_ids.items() if text in markers))
        return msgspec.structs.replace(plan, shown_tokens=shown)

    def prepare(self, request: ChatRequest) -> Prompt:
        """Return the prompt of the messages, or the plain prompt.

        Text in messages never becomes a special token. In a plain prompt, special texts do become special tokens, as
        fill-in-the-middle prompts require: it has no roles that a client could forge.
        """
        prompt, complete = self._encoded(request, "prompt", special=request.prompt is not None)
        length, limit = len(prompt.tokens), self._context_length
        check_length(request, length, complete=complete, context_length=limit, max_prompt=self._max_prompt)
        return prompt

    def encode(self, request: ChatRequest, *, special: bool) -> Prompt:
        prompt, complete = self._encoded(request, "tokens", special=special)
        return prompt if complete else self.prepare(request)

    def _encoded(self, request: ChatRequest, ids_param: str, *, special: bool) -> tuple[Prompt, bool]:
        """Return the prompt, and whether it is complete. ``ids_param`` is the field of token ids, for errors."""
        if isinstance(request.prompt, tuple):
            return Prompt(self._checked_ids(request.prompt, ids_param)), True
        images: list[tuple[int, int]] = []
        limit = max(_MAX_COUNTED, 2 * self._context_length)
        if request.prompt is None:
            ids, images, complete = self._encode_pieces(self._render(request), limit)
            self._check_images(request, images)
        else:
            ids, complete = self._encoder.encode([request.prompt], limit=limit)
        return Prompt((*(self._bos_tokens if special else ()), *ids), tuple(images)), complete

    def _encode_pieces(self, pieces: list[Piece], limit: int) -> tuple[list[int], list[tuple[int, int]], bool]:
        """Return the token ids, the images with their places, and whether the ids are complete."""
        ids: list[int] = []
        images: list[tuple[int, int]] = []
        complete = True
        for is_text, group in groupby(pieces, lambda piece: isinstance(piece, str)):
            if is_text and complete:
                texts = (piece for piece in group if isinstance(piece, str))
                more, complete = self._encoder.encode(texts, limit=limit - len(ids), at_start=not ids)
                ids += more
            elif not is_text:
                images += [(piece, len(ids)) for piece in group if isinstance(piece, int)]
        return ids, images, complete

    def _check_images(self, request: ChatRequest, rendered: list[tuple[int, int]]) -> None:
        """Raise :class:`RequestRefused` unless the prompt has each image of ``request`` once."""
        numbers = [number for number, _ in rendered]
        for number, image in enumerate(request.images):
            if numbers.count(number) != 1:
                raise refuse(
                    ProblemKind.TEMPLATE,
                    "The model's chat template does not render this image exactly once.",
                    param=image.param,
                )

    def _rendered_end(self, request: ChatRequest) -> str:
        return "".join(piece for piece in self._render(request)[-_LAST_PIECES:] if isinstance(piece, str))

    def _render(self, request: ChatRequest) -> list[Piece]:
        chat = self._chat_for(request)
        if chat is None:
            raise refuse(
                ProblemKind.TEMPLATE,
                "This model has no chat template. Use a plain completion, or serve a model made for chat.",
                param="messages",
            )
        try:
            return self._pieces(chat, request)
        except ChatTemplateError as error:
            param = "tools" if chat.facts.tools_as_text and self._accepts_without_tools(chat, request) else "messages"
            raise refuse(ProblemKind.TEMPLATE, self._specials.unescape(str(error)), param=param) from error

    def _chat_for(self, request: ChatRequest) -> Chat | None:
        """Return the template for ``request``, as in transformers."""
        return self._tool_chat if self._tool_chat and request.tools and request.tool_choice != "none" else self._chat

    def _accepts_without_tools(self, chat: Chat, request: ChatRequest) -> bool:
        """Return whether the template accepts the messages without the tool descriptions."""
        if not request.tools:
            return False
        try:
            self._pieces(chat, msgspec.structs.replace(request, tools=()))
        except ChatTemplateError:
            return False
        return True

    def _pieces(self, chat: Chat, request: ChatRequest) -> list[Piece]:
        client_texts: list[str] = []

        def escape(text: str) -> str:
            client_texts.append(text)
            return self._specials.escape(text)

        pieces = self._specials.pieces(self._rendered(chat, request, escape))
        if not self._specials.may_join(client_texts):
            return pieces
        separated = self._specials.pieces(self._rendered(chat, request, self._specials.escape_joining))
        # Cutting at the ends of texts changes some ordinary tokens, so it is done only if it prevents a special token.
        return separated if self._specials.count(separated) < self._specials.count(pieces) else pieces

    def _rendered(self, chat: Chat, request: ChatRequest, escape: Sanitize) -> str:
        """Return the rendered prompt. One that continues the last message ends with its text."""
        end = self._specials.end
        text = render(chat.template, request, chat.facts, escape, self._specials.image, end)
        if request.turn != "continued":
            return text
        if text.count(end) != 1:
            raise ChatTemplateError(
                "The model's chat template does not render the last message's text exactly once, so that no output can "
                "continue it. Let the conversation end with a message of the user."
            )
        return text.partition(end)[0]

    def _checked_ids(self, ids: tuple[int, ...], param: str) -> tuple[int, ...]:
        for value in ids:
            if not 0 <= value < self._vocabulary_size:
                raise refuse(
                    ProblemKind.INVALID,
                    f"Invalid '{param}': token id {value} is not in the model's vocabulary. "
                    f"Expected ids from 0 to {self._vocabulary_size - 1}.",
                    param=param,
                )
        return ids


def check_length(
    request: ChatRequest, length: int, *, complete: bool, context_length: int, max_prompt: int = 0
) -> None:
    """Raise :class:`RequestRefused` unless ``length`` prompt tokens leave room for an output in the context.

    Where turns can be left out of the prompt, there is room for ``max_tokens``, up to half of the context.

    ``complete`` is False if only ``length`` tokens of a longer prompt were counted. ``max_prompt`` is a lower limit of
    the prompt alone; 0: none.
    """
    param = "messages" if request.prompt is None else "prompt"
    if length == 0:
        raise refuse(ProblemKind.INVALID, f"'{param}' is empty: the prompt has no tokens.", param=param)
    check_prompt(length, max_prompt, param=param, complete=complete)
    room = min(request.sampling.max_tokens or 1, context_length // 2) if request.truncate else 1
    if length + room > context_length:
        excess = ContextExcess(prompt=length, limit=context_length)
        raise context_exceeded(excess, param=param, complete=complete)
