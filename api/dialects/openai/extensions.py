"""Request fields of vLLM's OpenAI-compatible server that OpenAI lacks; clients send them in ``extra_body``.

Source: vLLM's ``ChatCompletionRequest``, ``CompletionRequest`` and ``StructuredOutputsParams``. The ``guided_*`` fields
are older names of the fields of ``structured_outputs``.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from pydantic import ConfigDict, Field

from api.dialects.base.body import json_text
from api.dialects.base.conversation import continued
from api.dialects.base.fields import ByType, Items, NonEmptyText, Strict
from api.dialects.base.neutral import NeutralChatFields, NeutralCompletionFields
from api.dialects.base.sampling import ThinkingTokens, VllmSampling
from api.dialects.base.validation import invalid
from api.dialects.openai.completions_schema import CompletionRequest
from api.dialects.openai.schema import ChatCompletionRequest
from shared.protocol.request import ChatRequest, Constraint

NATIVE_VARIABLES = frozenset({"messages", "tools", "add_generation_prompt", "bos_token", "eos_token"})
"""Variables that the worker passes to chat templates itself. ``chat_template_kwargs`` can't set them."""

Schema = Annotated[dict[str, Any] | NonEmptyText, ByType("one of an object or string")]
"""A JSON Schema, as an object or as JSON text."""
Choices = Annotated[Items[NonEmptyText], Field(min_length=1)]


class StructuredOutputs(Strict):
    """Constraint of the whole output: exactly one of six forms.

    ``disable_fallback`` is always satisfied: there is no fallback. ``disable_any_whitespace`` is refused when true: the
    grammars allow white space between the tokens of JSON.
    """

    json_: Annotated[Schema | None, Field(alias="json")] = None
    regex: NonEmptyText | None = None
    choice: Choices | None = None
    grammar: NonEmptyText | None = None
    json_object: bool | None = None
    structural_tag: NonEmptyText | None = None
    disable_fallback: bool | None = None
    disable_any_whitespace: bool | None = None


class StructureFields(Strict):
    """Structured output fields in addition to ``response_format``."""

    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | None = None
    guided_regex: NonEmptyText | None = None
    guided_choice: Choices | None = None
    guided_grammar: NonEmptyText | None = None


class ServedChatRequest(ChatCompletionRequest, VllmSampling, StructureFields, NeutralChatFields):
    """The body of ``POST /v1/chat/completions``: OpenAI's fields and vLLM's."""

    model_config = ConfigDict(defer_build=False)  # the first chat does not wait for it

    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    thinking_token_budget: ThinkingTokens | None = None


class ServedCompletionRequest(CompletionRequest, VllmSampling, StructureFields, NeutralCompletionFields):
    """The body of ``POST /v1/completions``: OpenAI's fields and vLLM's."""


def with_extensions(request: ChatRequest, fields: ServedChatRequest | ServedCompletionRequest) -> ChatRequest:
    """Return ``request``, which was built from OpenAI's fields, with vLLM's fields applied.

    Raises :class:`RequestRefused` for a broken rule.
    """
    if fields.prompt_logprobs is not None and fields.stream:
        raise invalid("prompt_logprobs", "they are not available when 'stream' is true")
    limit = request.sampling.max_tokens
    if limit is not None and (request.sampling.min_tokens or 0) > limit:
        raise invalid("min_tokens", f"it can't be greater than the maximum number of tokens, which is {limit}")
    kwargs = fields.chat_template_kwargs if isinstance(fields, ServedChatRequest) else None
    extended = msgspec.structs.replace(
        request,
        return_token_ids=bool(fields.return_token_ids),
        constraint=_constraint(fields, request.constraint),
        template_kwargs=with_variables(request.template_kwargs, kwargs),
    )
    return _with_turn(extended, fields) if isinstance(fields, ServedChatRequest) else extended


def _with_turn(request: ChatRequest, fields: ServedChatRequest) -> ChatRequest:
    if not fields.continue_final_message:
        return msgspec.structs.replace(request, turn="none" if fields.add_generation_prompt is False else "opened")
    if fields.add_generation_prompt:
        raise invalid("add_generation_prompt", "it can't be true if 'continue_final_message' is")
    return continued(request, "continue_final_message")


def with_variables(own: str | None, given: dict[str, Any] | None) -> str | None:
    """Return the template variables: the client's, which override those derived from other fields.

    Raises :class:`RequestRefused` for a variable that the service sets.
    """
    if not given:
        return own
    reserved = sorted(NATIVE_VARIABLES & given.keys())
    if reserved:
        raise invalid("chat_template_kwargs", f"'{reserved[0]}' is set by the service and can't be overridden")
    return json_text(json.loads(own or "{}") | given)


def _constraint(fields: StructureFields, form: Constraint | None) -> Constraint | None:
    """Return the only constraint of the output, or None; ``form`` is that of ``response_format``."""
    given = [*([form] if form else []), *_constraints(fields)]
    if len(given) > 1:
        raise invalid(given[1].param, f"it can't be combined with '{given[0].param}'")
    if fields.structured_outputs is not None and fields.structured_outputs.disable_any_whitespace:
        raise invalid("structured_outputs.disable_any_whitespace", "white space in JSON can't be disabled")
    if fields.structured_outputs is not None and not any(
        constraint.param.startswith("structured_outputs") for constraint in given
    ):
        raise invalid(
            "structured_outputs",
            "one of 'json', 'regex', 'choice', 'grammar', 'json_object' and 'structural_tag' must be given",
        )
    return given[0] if given else None


def _constraints(fields: StructureFields) -> Iterator[Constraint]:
    """Yield the constraints in ``fields``, each with the name of its field."""
    form = fields.structured_outputs or StructuredOutputs()
    inside = "structured_outputs."
    for param, schema in ((f"{inside}json", form.json_), ("guided_json", fields.guided_json)):
        if schema is not None:
            text = schema if isinstance(schema, str) else json_text(schema)
            yield Constraint(kind="json_schema", value=text, param=param)
    for param, pattern in ((f"{inside}regex", form.regex), ("guided_regex", fields.guided_regex)):
        if pattern is not None:
            yield Constraint(kind="regex", value=pattern, param=param)
    for param, choice in ((f"{inside}choice", form.choice), ("guided_choice", fields.guided_choice)):
        if choice is not None:
            yield Constraint(kind="structural_tag", value=_any_of(choice), param=param)
    for param, ebnf in ((f"{inside}grammar", form.grammar), ("guided_grammar", fields.guided_grammar)):
        if ebnf is not None:
            yield Constraint(kind="grammar", value=ebnf, param=param)
    if form.json_object:
        yield Constraint(kind="json_object", param=f"{inside}json_object")
    if form.structural_tag is not None:
        yield Constraint(kind="structural_tag", value=form.structural_tag, param=f"{inside}structural_tag")


def _any_of(texts: list[str]) -> str:
    """Return a structural tag that allows exactly ``texts``."""
    options = [{"type": "const_string", "value": text} for text in texts]
    form = options[0] if len(options) == 1 else {"type": "or", "elements": options}
    return json_text({"type": "structural_tag", "format": form})
