"""The internal form of a request, and the jobs that carry it to workers.

Every dialect parses its body into a :class:`ChatRequest`; everything after parsing is independent of the dialect. All
types are frozen, so that a request can be shared between tasks.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import msgspec

from shared.protocol.version import PROTOCOL

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolChoice = Literal["none", "auto", "required"]
ConstraintKind = Literal["json_object", "json_schema", "regex", "grammar", "structural_tag"]
Tier = Literal["auto", "default", "flex", "priority", "batch"]
"""A service tier. Clients cannot name ``batch``: it is that of batch requests."""
Hidden = Literal["reasoning", "all"]
Notes = tuple[tuple[str, str], ...]
"""Names and values of HTTP headers."""
Turn = Literal["opened", "continued", "none"]
"""The assistant's turn at the end of a prompt of messages: opened by the generation prompt; that of the last message,
which the output continues; or none."""
Prompt = str | tuple[int, ...]
"""A plain completion's prompt: text, or token ids."""


LOCAL = "file://"
"""Prefix of the URL of a local file. Only dialects that serve local files make such URLs."""


INPUT = "input"
"""The parameter of custom tools."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that the assistant made earlier in the conversation. ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str


class Image(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: int = 0
    """Its offset in the message's ``content``, in characters."""
    param: str = ""
    """Path of its content part in the request, for errors: ``messages[0].content[1]``."""
    low: bool = False
    """Whether the client asks for low detail."""
    url: str = ""
    """The URL or data URL that the client sent, or that of a local file. Empty in a job."""
    digest: str = ""
    """SHA-256 (hexadecimal) of the file, which is stored beside the request. Empty until the file has been read."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the history, its content parts already flattened to plain text and the images in it."""

    role: Role
    content: str = ""
    images: tuple[Image, ...] = ()
    """In the order of their offsets."""
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class CustomInput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The form of a custom tool's input: any text, or text of a grammar. ``param`` is that grammar's field."""

    syntax: Literal["text", "regex", "lark"] = "text"
    definition: str = ""
    param: str = ""


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that the model may call. ``parameters`` is a JSON Schema as JSON text.

    A ``custom`` tool is a function with one parameter for the model, a string called :data:`INPUT`.
    """

    name: str
    description: str | None = None
    parameters: str | None = None
    strict: bool = False
    custom: CustomInput | None = None
    namespace: str | None = None
    """The part of ``name`` that is the function's namespace in the client's dialect. Not for the model."""


class Constraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A grammar for the whole output.

    ``value`` is JSON text for ``json_schema`` and ``structural_tag``, the pattern or EBNF text for
    ``regex`` and ``grammar``, and empty for ``json_object``. ``param`` names the field of the request that
    set it.
    """

    kind: ConstraintKind
    value: str = ""
    param: str = "response_format"


class PromptScoring(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requests the log probabilities of the prompt's tokens.

    ``top`` is the number of most likely tokens to return at each position. ``param`` is the path of the request's
    field for errors.
    """

    top: int = 0
    param: str = "prompt_logprobs"


class ThinkingBudget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The maximum number of tokens of reasoning. ``param`` is the path of the request's field for errors.

    ``strict``: the request is refused where the budget can't be enforced. Otherwise, it then has no effect.
    """

    tokens: int
    param: str = "thinking_token_budget"
    strict: bool = True


LOGITS = ("top_logprobs", "logit_bias", "allowed_token_ids", "bad_words")
"""Fields of :class:`Sampling` that need the rows of logits of new tokens."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Sampling parameters and stop conditions. ``None`` means the model's default, or else the dialect's."""

    max_tokens: int | None = None
    max_length: int | None = None
    """Maximum number of tokens of prompt and output without ``max_tokens``: a default of models."""
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop: bool = False
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    logprobs: bool = False
    top_logprobs: int = 0
    """Number of most likely tokens to return at each position."""
    prompt_scoring: PromptScoring | None = None
    thinking_budget: ThinkingBudget | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    """Pairs of a token id and the bias that is added to its logit."""
    allowed_token_ids: tuple[int, ...] = ()
    """The only tokens that may be generated, if there are any."""
    bad_words: tuple[str, ...] = ()
    """Texts that must not be generated, each in the tokens that the tokenizer makes of it."""
    beams: int = 1
    """Number of beams; 1 means no beam search."""
    length_penalty: float | None = None
    num_assistant_tokens: int | None = None
    assistant_confidence_threshold: float | None = None
    max_ngram_size: int | None = None

    @property
    def rows_param(self) -> str | None:
        """The first field that needs the rows of logits of new tokens; None if there is none."""
        return next((field for field in LOGITS if getattr(self, field)), None)

    @property
    def logits_param(self) -> str | None:
        """The first field that only a worker with access to its model's logits can serve; None if there is none."""
        if self.prompt_scoring is not None:
            return self.prompt_scoring.param
        if self.thinking_budget is not None and self.thinking_budget.strict:
            return self.thinking_budget.param
        return self.rows_param


def formed(request: "ChatRequest", **fields: object) -> "ChatRequest":
    """Return ``request`` with other ``fields`` of its :class:`ResponseForm`."""
    return msgspec.structs.replace(request, response=msgspec.structs.replace(request.response, **fields))


def fill_in(sampling: Sampling, defaults: Sampling) -> Sampling:
    fields = {
        field: value
        for field in Sampling.__struct_fields__
        if getattr(sampling, field) is None and (value := getattr(defaults, field)) is not None
    }
    return msgspec.structs.replace(sampling, **fields)


class Generate(msgspec.Struct, frozen=True, tag="generate"):
    """The kind of work of a job that generates text."""

    metered: ClassVar[bool] = True
    """Whether rate limits, spans and the usage count it. Clients count tokens in bursts; fair queueing bounds that."""


class Tokenize(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="tokenize"):
    """The kind of work of a job that returns the tokens of the prompt, or the text of a prompt of token ids."""

    metered: ClassVar[bool] = False
    add_special_tokens: bool = True
    """Whether the prompt begins with the tokens that the model's tokenizer puts before each text, such as BOS."""
    strings: bool = False
    """Whether the text of each token is returned."""
    text: bool = False
    """Whether the text of all tokens is returned."""
    describe: bool = False
    """Whether the tokenizer is described instead: the texts of BOS and EOS as strings, the chat template as text."""


COUNT = Tokenize(add_special_tokens=False)
"""The kind of work that counts the tokens of messages: chat templates write the special tokens themselves."""


class Embed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="embed"):
    """The kind of work of a job that returns the vectors of its prompts, of which it may have several."""

    metered: ClassVar[bool] = True
    dimensions: int = 0
    """The length of the vectors; 0 is the model's."""
    cut: int = 0
    """The number of tokens to which texts are cut, -1 for as many as the model reads. 0: longer ones are refused."""
    prefix: Literal["", "query", "document"] = ""
    """Which of the model's prefixes the texts get."""
    own_ids: bool = False
    """Whether the client says that its token ids are those of this model."""
    param: str = "input"
    """The field with the texts, for errors."""
    is_list: bool = False
    """Whether it is a list of texts."""
    first: int = 0
    """The index of the job's first text in it."""


class Rerank(Embed, frozen=True, kw_only=True, omit_defaults=True, tag="rerank"):
    """The kind of work of a job that returns the scores of its prompts, documents, as answers to ``queries``.

    A result has two values for each document: the score without and with the model's activation.
    """

    queries: tuple[str, ...] = ()
    """One for all documents, or one for each."""
    chunks: int = 0
    """The maximum number of parts of which a document that is too long is read. 0: it is refused."""
    document_tokens: int = 0
    """The number of tokens to which documents are cut; 0: they are whole. Cut ones have no further parts."""
    query_param: str = "query"
    """The field with the queries, for errors."""


Work = Generate | Tokenize | Embed | Rerank
"""What the jobs of a request do: the kinds of work, each with its own runner in workers."""


class ResponseForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What of a request only its exchange needs, for the form of the response. Not in jobs.

    If ``best_of`` exceeds the request's ``n``, that many texts are generated and the ``n`` likeliest returned.
    ``metadata`` holds pairs of key and value.
    """

    best_of: int = 1
    echo: bool = False
    prompt_logprobs: int | None = None
    """Number of most likely tokens at each position of the prompt in vLLM's ``prompt_logprobs``; None: no such field.
    """
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    """Whether each chunk of a stream with usage has the usage so far."""
    obfuscate: bool = False
    """Whether padding hides the length of the text in each chunk of a stream."""
    functions_form: bool = False
    """Whether the request and its response use the deprecated ``functions`` form of tool calls."""
    background: bool = False
    """Whether the request continues without its client."""
    metadata: tuple[tuple[str, str], ...] = ()
    hidden: Hidden | None = None
    """What the response leaves out."""
    base64: bool = False
    """Whether vectors are base64."""
    top: int | None = None
    """The number of documents in a ranking, the best first; None: all."""
    documents: bool = False
    """Whether a ranking contains the texts of its documents."""
    activation: Literal["model", "sigmoid", "none"] = "model"
    """What makes the score of a document from the model's output."""
    notes: Notes = ()
    """Headers of the response, which name what has no effect."""
    echoed: str | None = None
    """The fields of the request that the response repeats, as a JSON object."""


NO_FORM = ResponseForm()
"""The form in jobs."""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parsed request. Either ``messages`` or ``prompts`` (plain completions) are given.

    Each prompt has ``n`` choices. ``template_kwargs`` is a JSON object as text.
    """

    model: str
    work: Work = Generate()
    messages: tuple[Message, ...] = ()
    turn: Turn = "opened"
    prompts: tuple[Prompt, ...] = ()
    sampling: Sampling = Sampling()
    defaults: Sampling = Sampling()
    """The dialect's defaults for fields of ``sampling`` that neither the client nor the model sets."""
    n: int = 1
    return_token_ids: bool = False
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = "auto"
    named_tool: str | None = None
    parallel_tool_calls: bool = True
    max_tool_calls: int | None = None
    constraint: Constraint | None = None
    template_kwargs: str | None = None
    tier: Tier | None = None
    store: bool = False
    """Whether the response is stored: its jobs go on without their replica."""
    truncate: bool = False
    """Whether the oldest turns of a conversation that is too long are left out of the prompt."""
    response: ResponseForm = NO_FORM

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(image for message in self.messages for image in message.images)

    @property
    def keeps_slot(self) -> bool:
        """Whether its jobs keep their slots until they end, as far as a request shows: their tokens are not enough to
        continue them exactly. Batch requests leave slots free in another way.
        """
        sampling = self.sampling
        return self.tier != "batch" and bool(
            self.constraint
            or (self.tools and self.tool_choice != "none")
            or self.images
            or sampling.beams > 1
            or sampling.prompt_scoring
            or sampling.frequency_penalty
            or sampling.presence_penalty
            or (sampling.seed is not None and sampling.temperature != 0)
        )

    @property
    def logits_param(self) -> str | None:
        """The first field that only a worker with access to its model's logits can serve; None if there is none."""
        param = self.sampling.logits_param
        # Plain completions have one field for both.
        return "logprobs" if param == "top_logprobs" and self.prompts else param

    @property
    def max_calls(self) -> int | None:
        """Maximum number of tool calls of a choice: one if parallel calls are disabled or a function is named."""
        return self.max_tool_calls if self.parallel_tool_calls and self.named_tool is None else 1

    @property
    def prompt(self) -> Prompt | None:
        """The first prompt, the only one in a job's request unless it embeds."""
        return self.prompts[0] if self.prompts else None


class TraceContext(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A span as the parent of another process's spans: the two headers of W3C Trace Context."""

    traceparent: str
    tracestate: str = ""


class _Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    id: str
    reply_to: str
    choice: int = 0
    is_first: bool = True
    tenant: str = ""
    team: str = ""
    trace: TraceContext | None = None


class Job(_Job, frozen=True, kw_only=True, omit_defaults=True):
    """The unit of work in the queue: one choice of one request.

    A request with several choices or with images becomes jobs with ids ``REQUEST:CHOICE``; workers derive each choice's
    seed from the request's. A job's request has at most one prompt, or several to embed. A beam search is one job for
    all of its choices. ``reply_to`` is the id of the API replica that relays the events. ``is_first``: it is the first
    job of all prompts and choices. ``tenant`` is the id of the API key, for shares in workers; it is empty without a
    key. ``team`` is the id of the key's team, if it has one. ``trace`` is the span whose children are the job's spans,
    if it is traced.
    """

    request: ChatRequest

    @property
    def shared_request(self) -> str:
        """The id of the request that is stored apart from the job's payload; empty if there is none."""
        return self.id.rpartition(":")[0]


class QueuedJob(_Job, frozen=True, kw_only=True, omit_defaults=True):
    """A job in the form of its payload: a :class:`Job` with its request encoded or omitted.

    If omitted, it is stored once for all of the request's jobs, with its images, under
    :func:`shared.redis.keys.request`.
    """

    request: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    protocol: int = 1
    """The protocol version of the job (see :mod:`shared.protocol.version`)."""

    @classmethod
    def of(cls, job: Job, request: bytes | None) -> "QueuedJob":
        """Return ``job`` with its encoded ``request``, or without it if ``None``."""
        inline = msgspec.UNSET if request is None else msgspec.Raw(request)
        return cls(request=inline, protocol=PROTOCOL, **_common(job))

    def inline_request(self) -> ChatRequest | None:
        """Return the request, or ``None`` if it is shared. Raises :class:`msgspec.DecodeError` on malformed bytes."""
        return None if self.request is msgspec.UNSET else decode_request(self.request)

    def job(self, request: ChatRequest) -> Job:
        return Job(request=request, **_common(self))


def _common(job: _Job) -> dict[str, Any]:
    return {field: getattr(job, field) for field in _Job.__struct_fields__}


_encode = msgspec.msgpack.Encoder().encode

encode_request: Callable[[ChatRequest], bytes] = _encode
"""Returns the request as MessagePack bytes."""

decode_request = msgspec.msgpack.Decoder(ChatRequest).decode
"""Returns the request in the bytes. Raises :class:`msgspec.DecodeError` when they are not one."""

encode_job: Callable[[QueuedJob], bytes] = _encode
"""Returns the job as MessagePack bytes."""

decode_job = msgspec.msgpack.Decoder(QueuedJob).decode
"""Returns the job in the bytes. Raises :class:`msgspec.DecodeError` when they are not one."""
