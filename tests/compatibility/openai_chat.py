"""OpenAI's chat completions: every field that the newest official SDK sends."""

from api.dialects.openai import OpenAI
from tests.compatibility.common import (
    FUNCTION,
    JSON_OBJECT,
    JSON_SCHEMA,
    LOGIT_BIAS,
    LOGPROBS,
    MAX_COMPLETION_TOKENS,
    MAX_TOKENS,
    MODEL,
    NAMED_TOOL,
    PENALTIES,
    SEED,
    STOP,
    STREAM,
    TOOL,
    TOOL_CHOICE,
    TOOL_CHOICE_BY_NAME,
    TOP_LOGPROBS_REQUEST,
    USER,
)
from tests.compatibility.openai_answers import CHAT_ANSWERS
from tests.compatibility.openai_messages import BREAKPOINT, MESSAGES
from tests.compatibility.rows import Interface, Request
from tests.compatibility.vllm import VLLM_FIELDS

_STRICT_TOOL = {"type": "function", "function": {**FUNCTION, "strict": True}}
_CUSTOM_FORMAT = {"type": "grammar", "grammar": {"definition": "a", "syntax": "regex"}}
_CUSTOM_TOOL = {"type": "custom", "custom": {"name": "g", "description": "Does it.", "format": _CUSTOM_FORMAT}}
_LOCATION = {
    "type": "approximate",
    "approximate": {"city": "Rome", "country": "IT", "region": "Lazio", "timezone": "Europe/Rome"},
}

SAMPLING = (
    MODEL(),
    Request(
        fields="temperature",
        body={"temperature": 0.5},
        how="0 is greedy. Default: the model's own (0.2 for the default model), else 1.",
    ),
    Request(fields="top_p", body={"top_p": 0.5}, how="0 is greedy."),
    PENALTIES(),
    SEED(
        how=(
            "Best effort: the same seed gives the same text under the same `system_fingerprint` while the request is "
            "alone in its batch. With other requests or choices in the batch, rounding depends on the batch; with "
            "`--precision exact` only in the last digits, so that few texts differ. A sampled text may continue "
            "differently after a migration."
        ),
    ),
    STOP(
        how="Up to 4. No part of a stop string is sent.",
    ),
    MAX_COMPLETION_TOKENS(how="Default: as many as the context allows."),
    MAX_TOKENS(
        how="The older name. Requests with both are refused.",
    ),
    Request(
        fields="n",
        body={"n": 3},
        how="Number of choices, with seeds derived from `seed`. Also in streams.",
    ),
    LOGPROBS(),
    TOP_LOGPROBS_REQUEST(),
    LOGIT_BIAS(),
    Request(
        fields="reasoning_effort verbosity",
        body={"reasoning_effort": "low", "verbosity": "low"},
        how="Passed to the chat template, which may ignore them.",
    ),
)

STRUCTURE = (
    Request(
        fields="response_format response_format.type",
        when="text",
        body={"response_format": {"type": "text"}},
        how="Any text.",
    ),
    JSON_OBJECT(),
    JSON_SCHEMA(
        how="A grammar enforces the schema, strict or not. The text is valid unless the length limit, or a string "
        "longer than its `maxLength`, cuts it off. A schema that cannot be enforced is refused ([JSON "
        "schemas](json-schema.md)).",
    ),
)

TOOLS = (
    Request(
        fields="tools tools[].type tools[].function tools[].function.name tools[].function.description "
        "tools[].function.parameters tools[].function.strict",
        body={"tools": [_STRICT_TOOL]},
        how="In the model's tool-call format, which the chat template determines. A grammar enforces the schema of "
        "the arguments. Unless the tool is `strict`, unsupported keywords and `maxLength` are ignored ([JSON "
        "schemas](json-schema.md)).",
    ),
    Request(
        fields="tools[].type tools[].custom tools[].custom.name tools[].custom.description tools[].custom.format "
        "tools[].custom.format.type tools[].custom.format.grammar tools[].custom.format.grammar.definition "
        "tools[].custom.format.grammar.syntax",
        when="custom",
        body={"tools": [_CUSTOM_TOOL]},
    ),
    TOOL_CHOICE(),
    TOOL_CHOICE_BY_NAME(
        how="A grammar enforces exactly one call, for any model.",
    ),
    Request(
        fields="tool_choice tool_choice.type tool_choice.allowed_tools tool_choice.allowed_tools.mode "
        "tool_choice.allowed_tools.tools",
        when="allowed_tools",
        body={
            "tools": [TOOL],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [NAMED_TOOL]}},
        },
        how="The model sees only these tools.",
    ),
    Request(
        fields="tool_choice tool_choice.type tool_choice.custom tool_choice.custom.name tools[].type",
        when="custom",
        body={"tools": [_CUSTOM_TOOL], "tool_choice": {"type": "custom", "custom": {"name": "g"}}},
    ),
    Request(
        fields="parallel_tool_calls",
        body={"tools": [TOOL], "parallel_tool_calls": False},
        how="`false`: at most one call, and with `required` exactly one. In any case, a call that repeats the name and "
        "the arguments of an earlier one ends the output, and is left out.",
    ),
    Request(
        fields="functions functions[].name functions[].description functions[].parameters function_call "
        "function_call.name",
        body={"functions": [FUNCTION], "function_call": {"name": "f"}},
        how="Converted to tools; the response has the deprecated form.",
    ),
)

DELIVERY = (
    STREAM(how="Server-sent events that end with `[DONE]`."),
    Request(
        fields="stream_options stream_options.include_obfuscation",
        body={"stream": True, "stream_options": {"include_obfuscation": True}},
        how="Chunks are padded to multiples of 64 bytes. Off by default.",
    ),
    Request(
        fields="store metadata",
        body={"store": True, "metadata": {"a": "b"}},
        how="Stored for a limited time: read, list, update and delete under `/v1/chat/completions/{id}`. "
        "A response is stored even if its API replica dies, but not if its client disconnects.",
    ),
    Request(
        fields="service_tier",
        when="auto, default, flex, priority, fast",
        body={"service_tier": "flex"},
        how="Selects the priority class of the queue.",
    ),
    Request(fields="service_tier", when="scale", body={"service_tier": "scale"}),
    Request(
        fields="user safety_identifier prompt_cache_key",
        body={"user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
        how="Validated by the reference's rules, otherwise unused.",
    ),
    Request(
        fields="prompt_cache_retention",
        when="in_memory",
        body={"prompt_cache_retention": "in_memory"},
        how="Describes the default behaviour.",
    ),
    Request(fields="prompt_cache_retention", when="24h", body={"prompt_cache_retention": "24h"}),
    Request(
        fields="prompt_cache_options prompt_cache_options.mode",
        when="implicit",
        body={"prompt_cache_options": {"mode": "implicit"}},
        how="Describes the default behaviour.",
    ),
    Request(
        fields="prompt_cache_options prompt_cache_options.mode prompt_cache_options.ttl",
        when="explicit, or a time",
        body={"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}},
    ),
    Request(
        fields="modalities",
        when="text",
        body={"modalities": ["text"]},
        how="Describes the default behaviour.",
    ),
    Request(
        fields="modalities audio",
        when="audio",
        body={"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}},
    ),
    Request(
        fields="audio audio.voice audio.voice.id audio.format",
        body={"audio": {"voice": {"id": "v"}, "format": "wav"}},
    ),
    Request(
        fields="prediction prediction.type prediction.content prediction.content[].type prediction.content[].text "
        "prediction.content[].prompt_cache_breakpoint prediction.content[].prompt_cache_breakpoint.mode "
        "prediction.content[].prompt_cache_breakpoint.ttl",
        body={
            "prediction": {
                "type": "content",
                "content": [{"type": "text", "text": "Hi", "prompt_cache_breakpoint": BREAKPOINT}],
            }
        },
    ),
    Request(
        fields="moderation moderation.model moderation.policy moderation.policy.input moderation.policy.input.mode "
        "moderation.policy.output moderation.policy.output.mode",
        body={"moderation": {"model": "m", "policy": {"input": {"mode": "block"}, "output": {"mode": "score"}}}},
    ),
    Request(
        fields="web_search_options web_search_options.search_context_size web_search_options.user_location "
        "web_search_options.user_location.type web_search_options.user_location.approximate "
        "web_search_options.user_location.approximate.city web_search_options.user_location.approximate.country "
        "web_search_options.user_location.approximate.region web_search_options.user_location.approximate.timezone",
        body={"web_search_options": {"search_context_size": "low", "user_location": _LOCATION}},
    ),
)

_TEMPLATE_KWARGS = Request(
    fields="chat_template_kwargs",
    body={"chat_template_kwargs": {"enable_thinking": False}},
    how="vLLM's, in `extra_body`. Variables for the chat template.",
)

CHAT = Interface(
    title="OpenAI chat completions",
    route="POST /v1/chat/completions",
    about="The fields of the reference, of the official Python SDK, which is newer, and of vLLM.",
    dialect=lambda query, headers: OpenAI(),
    plain={"model": "m", "messages": [USER]},
    requests=(*MESSAGES, *SAMPLING, *STRUCTURE, *TOOLS, *DELIVERY, *VLLM_FIELDS, _TEMPLATE_KWARGS),
    answers=CHAT_ANSWERS,
)
