"""Messages between the supervisor and the prompt process.

The prompt process renders chat templates and tokenises text, so that a long or hostile prompt delays neither the
engine nor the heartbeat. It loads a tokenizer but no model.
"""

from typing import Any, Literal

import msgspec

from shared.parsers.formats import AUTO
from shared.protocol.formats import ModelFormats
from worker.engine.protocol import PlacedImage
from worker.grammar.plan import Plan
from worker.model.embedding import OWN, VectorSettings


class PromptOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the prompt process, passed as JSON on its command line.

    ``engine`` is a key of :data:`worker.engine.backends.BACKENDS`. ``path`` is the model's GGUF file or IR folder; the
    simulated engine has none. ``context_length`` is the maximum length of prompt and output in tokens, ``max_prompt``
    that of a prompt, 0 being no other limit, ``schema_bytes`` the maximum size of each schema and grammar in a request.
    ``chat_template`` is the text of a template that replaces the model's own, or empty.
    ``self_test`` is as in :class:`shared.runtime.settings.WorkerSettings`.
    ``tool_parser`` and ``reasoning_parser`` are values of :data:`~shared.parsers.formats.PARSERS`.
    ``template_kwargs`` and ``system`` are those of chats that have none of their own, ``vectors`` those of texts to
    embed or score.
    """

    engine: str
    path: str
    context_length: int
    max_prompt: int = 0
    schema_bytes: int = 65_536
    chat_template: str = ""
    self_test: Literal["on", "warn", "off"] = "on"
    tool_parser: str = AUTO
    reasoning_parser: str = AUTO
    template_kwargs: dict[str, Any] = {}
    system: str = ""
    vectors: VectorSettings = OWN


class Prepared(msgspec.Struct, frozen=True, array_like=True):
    """The prompt's token ids, the plan for the output, and the places of the images.

    A place is the number of an image in the request, and how many tokens are before it. The supervisor adds ``images``.
    ``strings`` are the texts of the single tokens and ``text`` is that of all, if requested.
    """

    tokens: tuple[int, ...]
    plan: Plan = Plan()
    places: tuple[tuple[int, int], ...] = ()
    strings: tuple[str, ...] = ()
    text: str = ""
    lengths: tuple[int, ...] = ()
    """The numbers of tokens of the texts to embed, whose tokens follow each other."""
    firsts: tuple[int, ...] = ()
    """Of each pair of texts to score, the number of tokens of the first type."""
    items: tuple[int, ...] = ()
    """Of each pair, the number of its document."""
    bad_word_tokens: tuple[tuple[int, ...], ...] = ()
    """Sequences of tokens that must not be generated: the request's ``bad_words``."""
    images: tuple[PlacedImage, ...] = ()
    counted: Plan | None = None
    """The plan for an engine that does not limit strings, if it differs: its grammar counts every ``minLength``."""
    findings: tuple[str, ...] | None = None
    """What the self-test has found, for a request to describe the tokenizer; None without a test."""
    formats: ModelFormats | None = None
    """What the chat template does, for a request to describe the tokenizer."""
