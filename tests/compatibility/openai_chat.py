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

_PARSE = "tests/unit/api/dialects/test_openai_parse.py::"
_SERVED = _PARSE + "test_every_served_field"
_NOT_SERVED = _PARSE + "test_what_is_not_served_is_refused_by_name"
_INSIDE = _PARSE + "test_what_is_not_served_inside_a_field_is_refused_by_path"
_SOME_VALUES = _PARSE + "test_a_value_that_is_not_served_is_refused_by_name"
_NEUTRAL = _PARSE + "test_a_value_that_asks_for_nothing_passes"
_ROUTES = "tests/integration/test_openai_routes.py::"
_SDK = "tests/acceptance/test_openai_sdk.py::"
_STRUCTURE = "tests/acceptance/test_structured_output.py::"

_STRICT_TOOL = {"type": "function", "function": {**FUNCTION, "strict": True}}
_CUSTOM_FORMAT = {"type": "grammar", "grammar": {"definition": "a", "syntax": "regex"}}
_CUSTOM_TOOL = {"type": "custom", "custom": {"name": "g", "description": "Does it.", "format": _CUSTOM_FORMAT}}
_LOCATION = {
    "type": "approximate",
    "approximate": {"city": "Rome", "country": "IT", "region": "Lazio", "timezone": "Europe/Rome"},
}

SAMPLING = (
    MODEL(test=_SDK + "test_exceptions"),
    Request(
        fields="temperature",
        body={"temperature": 0.5},
        how="0 is greedy. Default: the model's own (0.2 for the default model), else 1.",
        test="tests/unit/worker/model/test_defaults.py::test_the_client_comes_first_then_the_model_then_the_interface",
    ),
    Request(fields="top_p", body={"top_p": 0.5}, how="0 is greedy.", test=_SDK + "test_a_top_p_of_zero_is_greedy"),
    PENALTIES(test=_SDK + "test_penalties_change_the_text"),
    SEED(
        how=(
            "Best effort: the same seed gives the same text under the same `system_fingerprint` while the request is "
            "alone in its batch. With other requests or choices in the batch, rounding depends on the batch; with "
            "`--precision exact` only in the last digits, so that few texts differ. A sampled text may continue "
            "differently after a migration."
        ),
        test="tests/acceptance/test_main_job.py::test_a_seed_repeats_a_sampled_text",
    ),
    STOP(
        how="Up to 4. No part of a stop string is sent.",
        test="tests/acceptance/test_main_job.py::test_stop_strings_never_leak_in_part",
    ),
    MAX_COMPLETION_TOKENS(how="Default: as many as the context allows.", test=_SERVED),
    MAX_TOKENS(
        how="The older name. Requests with both are refused.",
        test=_PARSE + "test_one_stop_string_and_the_older_token_limit",
    ),
    Request(
        fields="n",
        body={"n": 3},
        how="Number of choices, with seeds derived from `seed`. Also in streams.",
        test="tests/acceptance/test_sampling.py::test_choices_stream_side_by_side_with_texts_of_their_own",
    ),
    LOGPROBS(test=_SDK + "test_log_probabilities_fit_the_text"),
    TOP_LOGPROBS_REQUEST(),
    LOGIT_BIAS(),
    Request(
        fields="reasoning_effort verbosity",
        body={"reasoning_effort": "low", "verbosity": "low"},
        how="Passed to the chat template, which may ignore them.",
        test=_PARSE + "test_fields",
    ),
)

STRUCTURE = (
    Request(
        fields="response_format response_format.type",
        when="text",
        body={"response_format": {"type": "text"}},
        how="Any text.",
        test=_NEUTRAL,
    ),
    JSON_OBJECT(test=_STRUCTURE + "test_json_mode_gives_an_object"),
    JSON_SCHEMA(
        how="A grammar enforces the schema, strict or not. The text is valid unless the length limit, or a string "
        "longer than its `maxLength`, cuts it off. A schema that cannot be enforced is refused ([JSON "
        "schemas](json-schema.md)).",
        test=_STRUCTURE + "test_sixteen_schemas_at_once_all_hold",
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
        test=_STRUCTURE + "test_a_named_tool_is_called_with_arguments_of_its_schema",
    ),
    Request(
        fields="tools[].type tools[].custom tools[].custom.name tools[].custom.description tools[].custom.format "
        "tools[].custom.format.type tools[].custom.format.grammar tools[].custom.format.grammar.definition "
        "tools[].custom.format.grammar.syntax",
        when="custom",
        body={"tools": [_CUSTOM_TOOL]},
        test=_INSIDE,
    ),
    TOOL_CHOICE(test=_SDK + "test_a_tool_that_must_be_called"),
    TOOL_CHOICE_BY_NAME(
        how="A grammar enforces exactly one call, for any model.",
        test=_SDK + "test_a_named_function_is_called_once",
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
        test=_PARSE + "test_fields",
    ),
    Request(
        fields="tool_choice tool_choice.type tool_choice.custom tool_choice.custom.name tools[].type",
        when="custom",
        body={"tools": [_CUSTOM_TOOL], "tool_choice": {"type": "custom", "custom": {"name": "g"}}},
        test=_INSIDE,
    ),
    Request(
        fields="parallel_tool_calls",
        body={"tools": [TOOL], "parallel_tool_calls": False},
        how="`false`: at most one call, and with `required` exactly one. In any case, a call that repeats the name and "
        "the arguments of an earlier one ends the output, and is left out.",
        test="tests/unit/api/chat/test_choices.py::test_a_second_call_ends_the_choice_and_cancels_its_job",
    ),
    Request(
        fields="functions functions[].name functions[].description functions[].parameters function_call "
        "function_call.name",
        body={"functions": [FUNCTION], "function_call": {"name": "f"}},
        how="Converted to tools; the response has the deprecated form.",
        test=_SDK + "test_a_function_that_must_be_called",
    ),
)

DELIVERY = (
    STREAM(how="Server-sent events that end with `[DONE]`.", test=_SDK + "test_the_stream_helper"),
    Request(
        fields="stream_options stream_options.include_obfuscation",
        body={"stream": True, "stream_options": {"include_obfuscation": True}},
        how="Chunks are padded to multiples of 64 bytes. Off by default.",
        test=_ROUTES + "test_obfuscation",
    ),
    Request(
        fields="store metadata",
        body={"store": True, "metadata": {"a": "b"}},
        how="Stored for a limited time: read, list, update and delete under `/v1/chat/completions/{id}`. "
        "A response is stored even if its API replica dies, but not if its client disconnects.",
        test=_ROUTES + "test_stored_completions",
    ),
    Request(
        fields="service_tier",
        when="auto, default, flex, priority, fast",
        body={"service_tier": "flex"},
        how="Selects the priority class of the queue.",
        test=_ROUTES + "test_waiting_requests_are_served_by_their_tier",
    ),
    Request(fields="service_tier", when="scale", body={"service_tier": "scale"}, test=_SOME_VALUES),
    Request(
        fields="user safety_identifier prompt_cache_key",
        body={"user": "u", "safety_identifier": "s", "prompt_cache_key": "k"},
        how="Validated by the reference's rules, otherwise unused.",
        test=_NEUTRAL,
    ),
    Request(
        fields="prompt_cache_retention",
        when="in_memory",
        body={"prompt_cache_retention": "in_memory"},
        how="Describes the default behaviour.",
        test=_NEUTRAL,
    ),
    Request(fields="prompt_cache_retention", when="24h", body={"prompt_cache_retention": "24h"}, test=_SOME_VALUES),
    Request(
        fields="prompt_cache_options prompt_cache_options.mode",
        when="implicit",
        body={"prompt_cache_options": {"mode": "implicit"}},
        how="Describes the default behaviour.",
        test=_NEUTRAL,
    ),
    Request(
        fields="prompt_cache_options prompt_cache_options.mode prompt_cache_options.ttl",
        when="explicit, or a time",
        body={"prompt_cache_options": {"mode": "explicit", "ttl": "30m"}},
        test=_NOT_SERVED,
    ),
    Request(
        fields="modalities",
        when="text",
        body={"modalities": ["text"]},
        how="Describes the default behaviour.",
        test=_NEUTRAL,
    ),
    Request(
        fields="modalities audio",
        when="audio",
        body={"modalities": ["text", "audio"], "audio": {"voice": "alloy", "format": "wav"}},
        test=_NOT_SERVED,
    ),
    Request(
        fields="audio audio.voice audio.voice.id audio.format",
        body={"audio": {"voice": {"id": "v"}, "format": "wav"}},
        test=_NOT_SERVED,
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
        test=_NOT_SERVED,
    ),
    Request(
        fields="moderation moderation.model moderation.policy moderation.policy.input moderation.policy.input.mode "
        "moderation.policy.output moderation.policy.output.mode",
        body={"moderation": {"model": "m", "policy": {"input": {"mode": "block"}, "output": {"mode": "score"}}}},
        test=_NOT_SERVED,
    ),
    Request(
        fields="web_search_options web_search_options.search_context_size web_search_options.user_location "
        "web_search_options.user_location.type web_search_options.user_location.approximate "
        "web_search_options.user_location.approximate.city web_search_options.user_location.approximate.country "
        "web_search_options.user_location.approximate.region web_search_options.user_location.approximate.timezone",
        body={"web_search_options": {"search_context_size": "low", "user_location": _LOCATION}},
        test=_NOT_SERVED,
    ),
)

_TEMPLATE_KWARGS = Request(
    fields="chat_template_kwargs",
    body={"chat_template_kwargs": {"enable_thinking": False}},
    how="vLLM's, in `extra_body`. Variables for the chat template.",
    test="tests/unit/api/dialects/test_vllm_fields.py::test_variables_for_the_chat_template",
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
