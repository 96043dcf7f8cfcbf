"""OpenAI's Responses."""

from typing import Any

from api.dialects.responses import Responses, StoredConversation
from shared.protocol.request import ChatRequest
from tests.compatibility.common import CACHED_TOKENS, MODEL, SCHEMA, USER
from tests.compatibility.rows import Answer, Interface, Request

_TOOL: dict[str, Any] = {"type": "function", "name": "f", "description": "Does it.", "parameters": SCHEMA}
_FORMAT = {"type": "json_schema", "name": "s", "description": "It.", "schema": SCHEMA, "strict": True}


def _input(*items: dict[str, Any]) -> dict[str, object]:
    return {"input": list(items)}


def _content(*parts: dict[str, Any]) -> dict[str, object]:
    return _input({"role": "user", "content": list(parts)})


REQUESTS = (
    MODEL(),
    Request(
        fields="input input[].type input[].role input[].content input[].content[].type input[].content[].text",
        when="messages",
        body=_input({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}),
        how="A text or items. `system` and `developer` messages become part of one leading system message.",
    ),
    Request(
        fields="instructions",
        body={"instructions": "Be brief."},
        how="Become the start of the system message.",
    ),
    Request(
        fields="input[].content[].image_url input[].content[].detail",
        body=_content({"type": "input_image", "image_url": "https://example.com/a.png", "detail": "low"}),
        how="By vision-language models; URLs with `--media-domains`.",
    ),
    Request(
        fields="input[].content[].file_id",
        when="input_image",
        body=_content({"type": "input_image", "file_id": "f"}),
    ),
    Request(
        fields="input[].content[].type",
        when="input_file, input_audio",
        body=_content({"type": "input_file", "file_id": "f"}),
    ),
    Request(
        fields="input[].content[].prompt_cache_breakpoint",
        body=_content({"type": "input_text", "text": "Hello", "prompt_cache_breakpoint": {"mode": "explicit"}}),
    ),
    Request(
        fields="input[].call_id input[].name input[].arguments input[].output input[].id input[].status",
        when="function_call, function_call_output",
        body=_input(
            USER,
            {
                "type": "function_call",
                "id": "fc",
                "call_id": "c",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            },
            {"type": "function_call_output", "call_id": "c", "output": "1"},
        ),
        how="Each call needs a result. Calls and results of custom tools are accepted.",
    ),
    Request(
        fields="input[].summary input[].summary[].type input[].summary[].text input[].content "
        "input[].content[].text input[].encrypted_content",
        when="reasoning",
        body=_input(
            USER,
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "content": [{"type": "reasoning_text", "text": "Hm."}],
                "encrypted_content": "x",
            },
        ),
        how="The chat template gets the content, else the encrypted content, else the summary. Encrypted content of "
        "other services is ignored.",
    ),
    Request(
        fields="input[].tools",
        when="additional_tools",
        body=_input({"type": "additional_tools", "role": "developer", "tools": [_TOOL]}, USER),
        how="The same as `tools`.",
    ),
    Request(
        fields="input[].id",
        when="item_reference",
        body=_input({"type": "item_reference", "id": "m"}),
        how="An item of a stored response.",
    ),
    Request(
        fields="store",
        body={"store": True},
        how="True by default, unless the body is larger than `--max-body`. Kept for `--store-ttl` seconds, the newest "
        "`--store-limit` of an API key.",
    ),
    Request(
        fields="previous_response_id",
        body={"previous_response_id": "r"},
        how="A stored response of the same API key; the whole conversation before it is part of the prompt.",
    ),
    Request(
        fields="background",
        body={"background": True},
        how="The response does not depend on its client's connection, and survives the loss of workers and replicas.",
    ),
    Request(
        fields="input[].type",
        when="items of hosted tools",
        body=_input({"type": "web_search_call", "id": "w"}),
    ),
    Request(
        fields="max_output_tokens temperature top_p presence_penalty frequency_penalty stream stream_options "
        "stream_options.include_obfuscation",
        body={
            "max_output_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.5,
            "presence_penalty": 1,
            "frequency_penalty": 1,
            "stream": True,
            "stream_options": {"include_obfuscation": False},
        },
        how="Applied by the engine. `max_output_tokens` limits reasoning and text together.",
    ),
    Request(
        fields="stream_options stream_options.include_obfuscation",
        when="true",
        body={"stream_options": {"include_obfuscation": True}},
    ),
    Request(
        fields="top_logprobs include",
        when="message.output_text.logprobs",
        body={"top_logprobs": 3, "include": ["message.output_text.logprobs"]},
        how="`top_logprobs` needs `--logits`.",
    ),
    Request(
        fields="include",
        when="reasoning.encrypted_content",
        body={"include": ["reasoning.encrypted_content"]},
        how="Reasoning in an opaque form that clients send back. It is encoded, not encrypted.",
    ),
    Request(
        fields="include",
        when="others",
        body={"include": ["web_search_call.action.sources"]},
        how="Accepted without effect: there is no output of hosted tools.",
    ),
    Request(
        fields="tools tools[].type tools[].name tools[].description tools[].parameters tools[].strict "
        "parallel_tool_calls tool_choice tool_choice.type tool_choice.name",
        when="function",
        body={
            "tools": [_TOOL | {"strict": True}],
            "parallel_tool_calls": False,
            "tool_choice": {"type": "function", "name": "f"},
        },
        how="As `tools` under `/v1/chat/completions`.",
    ),
    Request(
        fields="tool_choice tool_choice.type tool_choice.mode tool_choice.tools",
        when="allowed_tools",
        body={"tools": [_TOOL], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [_TOOL]}},
        how="The model sees only these.",
    ),
    Request(
        fields="tools[].tools tools[].tools[].type tools[].tools[].name tools[].tools[].description "
        "tools[].tools[].parameters tools[].tools[].strict input[].namespace",
        when="namespace",
        body={
            "tools": [{"type": "namespace", "name": "n", "description": "More.", "tools": [_TOOL | {"strict": True}]}],
            **_input(
                {"type": "function_call", "call_id": "c", "namespace": "n", "name": "f", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c", "output": "1"},
            ),
        },
        how="The model sees the functions as `n__f`; calls have `name` and `namespace`.",
    ),
    Request(
        fields="tools[].type",
        when="all others",
        body={"tools": [{"type": "web_search"}]},
        how="Skipped: the model does not see them. The header `x-skipped-tools` of the response has their types.",
    ),
    Request(
        fields="tool_choice.type",
        when="hosted tools",
        body={"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}},
    ),
    Request(fields="tools[].defer_loading", body={"tools": [_TOOL | {"defer_loading": True}]}),
    Request(
        fields="tools[].allowed_callers",
        body={"tools": [_TOOL | {"allowed_callers": ["programmatic"]}]},
    ),
    Request(
        fields="text text.format text.format.type text.format.name text.format.description text.format.schema "
        "text.format.strict text.verbosity",
        body={"text": {"format": _FORMAT, "verbosity": "low"}},
        how="A grammar enforces `json_schema` and `json_object`. The chat template gets `verbosity`.",
    ),
    Request(
        fields="reasoning reasoning.effort reasoning.summary reasoning.generate_summary",
        body={"reasoning": {"effort": "low", "summary": "auto", "generate_summary": "auto"}},
        how="The chat template gets `effort`. With `summary`, the summary is the complete reasoning.",
    ),
    Request(fields="reasoning.context", body={"reasoning": {"context": "all_turns"}}),
    Request(fields="reasoning.mode", body={"reasoning": {"mode": "pro"}}),
    Request(
        fields="service_tier",
        body={"service_tier": "flex"},
        how="`auto`, `default`, `flex`, `priority` or `fast`: selects the priority class of the queue.",
    ),
    Request(fields="truncation", when="disabled", body={"truncation": "disabled"}, how="The default."),
    Request(
        fields="truncation",
        when="auto",
        body={"truncation": "auto"},
        how="A conversation that is too long loses its oldest turns. The instructions and the last turn are kept.",
    ),
    Request(
        fields="metadata user safety_identifier prompt_cache_key prompt_cache_retention client_metadata",
        body={
            "metadata": {"a": "b"},
            "user": "u",
            "safety_identifier": "s",
            "prompt_cache_key": "k",
            "prompt_cache_retention": "in_memory",
            "client_metadata": {"a": "b"},
        },
        how="Accepted without effect, and repeated in the response except `client_metadata`, which Codex sends.",
    ),
    Request(
        fields="max_tool_calls",
        body={"tools": [_TOOL], "max_tool_calls": 2},
        how="Maximum number of function calls, because there are no hosted tools. One more ends the output and is left "
        "out.",
    ),
    Request(fields="prompt_cache_options", body={"prompt_cache_options": {"mode": "explicit"}}),
    *(
        Request(fields=field, body={field: value})
        for field, value in (
            ("access_programs", {"cyber": "standard"}),
            ("background_options", {"completion_window": "2h"}),
            ("context_management", [{"type": "compaction"}]),
            ("conversation", "c"),
            ("image", {"context_compression": "disabled"}),
            ("moderation", {"model": "m"}),
            ("prompt", {"id": "p"}),
        )
    ),
)


def _response(fields: str) -> str:
    """Return paths of a response, and of one nested in an event."""
    return " ".join(f"{field} response.{field}" for field in fields.split())


def _item(fields: str) -> str:
    """Return paths of an output item, in a response and in events."""
    return " ".join(f"output[].{field} response.output[].{field} item.{field}" for field in fields.split())


_LOGPROBS = (
    "logprobs[].token logprobs[].logprob logprobs[].bytes logprobs[].top_logprobs logprobs[].top_logprobs[].token "
    "logprobs[].top_logprobs[].logprob logprobs[].top_logprobs[].bytes"
)

ANSWERS = (
    Answer(
        fields=_response(
            "id object created_at completed_at status model output error incomplete_details incomplete_details.reason"
        )
        + " type sequence_number response",
        how="A response, or the events of a stream, with their names in `event:` lines.",
    ),
    Answer(
        fields=_item(
            "id type status role content content[].type content[].text content[].annotations content[].logprobs"
        )
        + " item item_id output_index content_index part part.type part.text part.annotations part.logprobs delta text "
        "logprobs",
        how="Messages, in streams with all events of the reference.",
    ),
    Answer(
        fields=_item("summary summary[].type summary[].text") + " summary_index",
        how="Reasoning is in `content`, or in `summary` if the request asks for one.",
    ),
    Answer(
        fields=_item("encrypted_content"),
        how="In reasoning items, if the request includes it.",
    ),
    Answer(
        fields=_item("call_id name arguments") + " arguments",
        how="Function calls.",
    ),
    Answer(
        fields=" ".join(
            (
                _item(" ".join(f"content[].{field}" for field in _LOGPROBS.split())),
                *(f"{prefix}{field}" for prefix in ("", "part.") for field in _LOGPROBS.split()),
            )
        ),
        how="If requested.",
    ),
    Answer(
        fields=_response(
            "usage usage.input_tokens usage.input_tokens_details usage.input_tokens_details.cached_tokens "
            "usage.input_tokens_details.cache_write_tokens usage.output_tokens usage.output_tokens_details "
            "usage.output_tokens_details.reasoning_tokens usage.total_tokens"
        ),
        how=f"At the end. {CACHED_TOKENS}",
    ),
    Answer(
        fields=_response(
            "background frequency_penalty instructions max_output_tokens max_tool_calls metadata metadata.a "
            "parallel_tool_calls presence_penalty previous_response_id prompt_cache_key prompt_cache_retention "
            "reasoning reasoning.effort reasoning.summary "
            "safety_identifier service_tier store temperature text text.format text.format.type "
            "text.format.name text.format.description text.format.schema text.format.schema.type "
            "text.format.schema.properties text.format.schema.required text.format.schema.additionalProperties "
            "text.format.strict text.verbosity tool_choice tool_choice.type tool_choice.name tool_choice.mode "
            "tool_choice.tools tool_choice.tools[].type tool_choice.tools[].name tool_choice.tools[].description "
            "tool_choice.tools[].parameters tool_choice.tools[].parameters.type "
            "tool_choice.tools[].parameters.properties tool_choice.tools[].parameters.required "
            "tool_choice.tools[].parameters.additionalProperties tools tools[].type tools[].name tools[].description "
            "tools[].parameters tools[].parameters.type tools[].parameters.properties tools[].parameters.required "
            "tools[].parameters.additionalProperties tools[].strict top_logprobs top_p truncation user"
        ),
        how="As in the request, or the default.",
    ),
    Answer(
        fields="access_programs conversation image input_transformations moderation prompt prompt_cache_diagnostics "
        "prompt_cache_options prompt_cache_retention tool_usage",
        how="They describe features that are refused or have no effect.",
    ),
    Answer(
        fields="error error.message error.type error.param error.code",
        how="OpenAI's errors. A response that fails later has `code` and `message`.",
    ),
)


class _WithHistory(Responses):
    """The dialect with a stored item and a stored response."""

    def parse(self, body: bytes) -> ChatRequest:
        valid = self.validate(body)
        history = StoredConversation(earlier=(USER,), referenced={"m": USER})
        return valid.request(history, store=valid.store is not False)


RESPONSES = Interface(
    title="OpenAI responses",
    route="POST /v1/responses",
    about="See [responses](responses.md). Only function tools are served; the client runs the functions.",
    dialect=lambda query, headers: _WithHistory(),
    plain={"model": "m", "input": [USER]},
    requests=REQUESTS,
    answers=ANSWERS,
)
