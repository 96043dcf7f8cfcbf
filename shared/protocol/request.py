"""The one internal form of a chat request, and the job that carries it to a worker.

Every dialect parses its body into a :class:`ChatRequest`; nothing behind the edge knows which
dialect it came from. All types are frozen, so that a request can be shared between tasks.
"""

from typing import Literal

import msgspec

Role = Literal["system", "developer", "user", "assistant", "tool"]
ToolChoice = Literal["none", "auto", "required"]
ConstraintKind = Literal["json_object", "json_schema", "regex", "grammar", "structural_tag"]
Tier = Literal["auto", "default", "flex", "priority"]
Prompt = str | tuple[int, ...]
"""A plain completion's prompt: text, or token ids."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A call that the assistant made earlier in the conversation. ``arguments`` is JSON text."""

    id: str
    name: str
    arguments: str


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of the history, its content parts already flattened to plain text."""

    role: Role
    content: str = ""
    name: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


class Tool(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function that the model may call. ``parameters`` is a JSON Schema as JSON text."""

    name: str
    description: str | None = None
    parameters: str | None = None
    strict: bool = False


class Constraint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A form that the whole output must have.

    ``value`` is JSON text for ``json_schema`` and ``structural_tag``, the pattern or EBNF text for
    ``regex`` and ``grammar``, and empty for ``json_object``. ``param`` names the field of the request that
    asked for it.
    """

    kind: ConstraintKind
    value: str = ""
    param: str = "response_format"


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How tokens are chosen and when to stop. ``None`` means the model's own default, else the interface's."""

    max_tokens: int | None = None
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
    beams: int = 1
    """Beam search with so many beams; 1 is none."""
    length_penalty: float | None = None
    num_assistant_tokens: int | None = None
    assistant_confidence_threshold: float | None = None
    max_ngram_size: int | None = None


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A parsed request. Either ``messages`` or ``prompts`` (plain completions) are given.

    Each prompt has ``n`` choices. With ``best_of`` > n, so many are generated for it and the n likeliest are
    the choices. ``template_kwargs`` is a JSON object as text. ``metadata`` holds pairs of key and value.
    """

    model: str
    messages: tuple[Message, ...] = ()
    prompts: tuple[Prompt, ...] = ()
    sampling: Sampling = Sampling()
    defaults: Sampling = Sampling()
    """What the interface has for fields of ``sampling`` that neither the client nor the model sets."""
    n: int = 1
    best_of: int = 1
    echo: bool = False
    stream: bool = False
    include_usage: bool = False
    obfuscate: bool = False
    """Whether the sizes of a stream's chunks must not tell the sizes of their texts."""
    tools: tuple[Tool, ...] = ()
    functions_form: bool = False
    """Whether calls were asked for, and are answered, in the deprecated form of ``functions``."""
    tool_choice: ToolChoice = "auto"
    named_tool: str | None = None
    parallel_tool_calls: bool = True
    constraint: Constraint | None = None
    template_kwargs: str | None = None
    user: str | None = None
    tier: Tier | None = None
    store: bool = False
    metadata: tuple[tuple[str, str], ...] = ()

    @property
    def single_call(self) -> bool:
        """Whether an answer has at most one tool call: parallel calls are off, or one function was named."""
        return not self.parallel_tool_calls or self.named_tool is not None

    @property
    def prompt(self) -> Prompt | None:
        """The first prompt: the only one in a job's request."""
        return self.prompts[0] if self.prompts else None


class Job(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One generation of a request, as it lies in the queue.

    A request with several choices becomes several jobs that differ in ``choice``; a worker derives the choice's
    seed from the request's. Their ids are ``REQUEST:CHOICE``. A job's request holds at most one prompt. Beam search is
    one job for all its choices.
    ``reply_to`` is the id of the API replica that relays the answer, ``tenant`` that of the API key, by which the
    queue is shared fairly; it is empty where no key was used.
    """

    id: str
    reply_to: str
    request: ChatRequest
    choice: int = 0
    tenant: str = ""

    @property
    def shared_request(self) -> str:
        """The id of the request that this job shares with others; empty for a request's only job."""
        return self.id.rpartition(":")[0]


class QueuedJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as its payload in the queue holds it: a :class:`Job` with its request encoded, or without it.

    Without it, the jobs of a request share one copy, which lies under :func:`shared.redis.keys.request`.
    """

    id: str
    reply_to: str
    request: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    choice: int = 0
    tenant: str = ""

    @classmethod
    def of(cls, job: Job, request: bytes | None) -> "QueuedJob":
        """``job`` with its encoded ``request``, or without it."""
        inline = msgspec.UNSET if request is None else msgspec.Raw(request)
        return cls(id=job.id, reply_to=job.reply_to, request=inline, choice=job.choice, tenant=job.tenant)

    def inline_request(self) -> ChatRequest | None:
        """The request; ``None`` where it is shared. Raises :class:`msgspec.DecodeError` on foreign bytes."""
        return None if self.request is msgspec.UNSET else decode_request(self.request)

    def job(self, request: ChatRequest) -> Job:
        """The job with its ``request``."""
        return Job(id=self.id, reply_to=self.reply_to, request=request, choice=self.choice, tenant=self.tenant)


_encoder = msgspec.msgpack.Encoder()
_request_decoder = msgspec.msgpack.Decoder(ChatRequest)
_job_decoder = msgspec.msgpack.Decoder(QueuedJob)


def encode_request(request: ChatRequest) -> bytes:
    """Return the request as MessagePack bytes."""
    return _encoder.encode(request)


def decode_request(data: bytes | msgspec.Raw) -> ChatRequest:
    """Return the request in ``data``. Raises :class:`msgspec.DecodeError` when the bytes are not one."""
    return _request_decoder.decode(data)


def encode_job(job: QueuedJob) -> bytes:
    """Return the job as MessagePack bytes."""
    return _encoder.encode(job)


def decode_job(data: bytes) -> QueuedJob:
    """Return the job in ``data``.

    Raises :class:`msgspec.DecodeError` (or its subclass ``ValidationError``) when the bytes are not one.
    """
    return _job_decoder.decode(data)
