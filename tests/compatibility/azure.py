"""The Azure AI model inference API's chat completions."""

from api.dialects.azure import Azure
from tests.compatibility.common import (
    CALL,
    IMAGES,
    JSON_OBJECT,
    JSON_SCHEMA,
    MODEL,
    PROMPT_LOGPROBS,
    REASONING,
    REFUSAL,
    SEED,
    TEXT,
    TOKEN_IDS,
    TOKEN_LOGPROBS,
    TOOL,
    TOOL_CALLS,
    TOOL_CHOICE,
    TOOL_CHOICE_BY_NAME,
    TOP_LOGPROBS,
    USAGE,
    USER,
)
from tests.compatibility.rows import Answer, Interface, Request

_PASS = {"extra-parameters": "pass-through"}

_ADDRESS = (
    Request(
        fields="?api-version",
        how="Required, as YYYY-MM-DD or YYYY-MM-DD-preview. All versions are equivalent.",
    ),
    Request(
        fields="azureml-model-deployment:",
        headers={"azureml-model-deployment": "m"},
        how="Selects the model; 404 if no worker serves it.",
    ),
    MODEL(
        body={"model": "m"},
        how="Ignored if only one model is served, as in the reference; required otherwise.",
    ),
    Request(
        fields="extra-parameters:",
        when="drop, ignore",
        body={"surprise": 1},
        headers={"extra-parameters": "ignore"},
        how="Fields that are not in the reference are ignored.",
    ),
    Request(
        fields="extra-parameters: surprise",
        when="error, which is the default",
        body={"surprise": 1},
        headers={"extra-parameters": "error"},
    ),
    Request(
        fields="extra-parameters: surprise",
        when="pass-through, unknown to the model",
        body={"surprise": 1},
        headers=_PASS,
    ),
)

_REFERENCE = (
    Request(
        fields="messages messages[].role messages[].content messages[].content[].type messages[].content[].text "
        "messages[].tool_calls messages[].tool_calls[].id messages[].tool_calls[].type "
        "messages[].tool_calls[].function messages[].tool_calls[].function.name "
        "messages[].tool_calls[].function.arguments messages[].tool_call_id",
        body={
            "messages": [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c", "content": None},
            ]
        },
        how="The reference's roles, and `developer`, which the SDK has.",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].image_url messages[].content[].image_url.url "
        "messages[].content[].image_url.detail",
        when="image_url",
        body={
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "https://example.com/a", "detail": "low"}}],
                }
            ]
        },
        how=IMAGES,
    ),
    Request(
        fields="messages[].content[].type messages[].content[].content messages[].content[].detail",
        when="image",
        body={"messages": [{"role": "user", "content": [{"type": "image", "content": "AA==", "detail": "low"}]}]},
        how="As `image_url`; `content` is a URL or base64.",
    ),
    Request(
        fields="messages[].content[].type messages[].content[].input_audio",
        when="input_audio, audio_url",
        body={"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]},
    ),
    Request(
        fields="frequency_penalty presence_penalty temperature top_p",
        body={"frequency_penalty": 1, "presence_penalty": 1, "temperature": 0.5, "top_p": 0.5},
        how="Applied by the engine.",
    ),
    Request(
        fields="temperature",
        when="out of range, as with every field",
        body={"temperature": 9},
    ),
    Request(
        fields="max_tokens",
        body={"max_tokens": None},
        how="Default, or `null`: as many as the context allows.",
    ),
    SEED(how="As under `/v1/chat/completions`."),
    Request(fields="stop", body={"stop": ["a"]}, how="Up to 4."),
    Request(
        fields="stream",
        body={"stream": True},
        how="The last event has the usage.",
    ),
    JSON_OBJECT(when="text, json_object"),
    JSON_SCHEMA(
        how="Not in the reference, but in the SDK. Enforced by a grammar.",
    ),
    Request(
        fields="tools tools[].type tools[].function tools[].function.name tools[].function.description "
        "tools[].function.parameters",
        body={"tools": [TOOL]},
        how="As under `/v1`.",
    ),
    TOOL_CHOICE(),
    TOOL_CHOICE_BY_NAME(),
)

_EXTRAS = (
    Request(
        fields="extra-parameters: allowed_token_ids bad_words prompt_logprobs return_token_ids",
        when="pass-through",
        body={"allowed_token_ids": [1], "bad_words": ["a"], "prompt_logprobs": 1, "return_token_ids": True},
        headers=_PASS,
        how="vLLM's, as under `/v1`.",
    ),
    Request(
        fields="extra-parameters: assistant_confidence_threshold best_of chat_template_kwargs ignore_eos "
        "include_stop_str_in_output length_penalty logit_bias logprobs max_ngram_size min_p min_tokens "
        "n parallel_tool_calls reasoning_effort repetition_penalty skip_special_tokens stop_token_ids "
        "stream_options top_k top_logprobs user",
        when="pass-through",
        body={
            "assistant_confidence_threshold": 0.4,
            "best_of": 2,
            "chat_template_kwargs": {},
            "ignore_eos": False,
            "include_stop_str_in_output": True,
            "length_penalty": 1.0,
            "logit_bias": {"1": 1},
            "logprobs": True,
            "max_ngram_size": 3,
            "min_p": 0.1,
            "min_tokens": 1,
            "n": 2,
            "parallel_tool_calls": False,
            "reasoning_effort": "low",
            "repetition_penalty": 1.1,
            "skip_special_tokens": True,
            "stop_token_ids": [1],
            "stream_options": {},
            "top_k": 5,
            "top_logprobs": 3,
            "user": "u",
            "tools": [TOOL],
            "stream": True,
        },
        headers=_PASS,
        how="As under `/v1` and `/v3`.",
    ),
    *(
        Request(
            fields=f"extra-parameters: {field}",
            when="pass-through",
            body={field: value},
            headers=_PASS,
            how="As under `/v1`.",
        )
        for field, value in (
            ("structured_outputs", {"regex": "a"}),
            ("guided_json", {"const": 1}),
            ("guided_regex", "a"),
            ("guided_choice", ["a"]),
            ("guided_grammar", 'root ::= "a"'),
        )
    ),
    Request(
        fields="extra-parameters: max_completion_tokens num_assistant_tokens",
        when="pass-through",
        body={"max_completion_tokens": 5, "num_assistant_tokens": 5},
        headers=_PASS,
        how="Other fields replace them: `max_tokens`, `assistant_confidence_threshold`.",
    ),
)

_ANSWERS = (
    Answer(
        fields="id object created model system_fingerprint choices choices[].index choices[].finish_reason",
        how="`stop`, `length` or `tool_calls`; nothing is filtered.",
    ),
    TEXT(),
    TOOL_CALLS(),
    USAGE(how="Also in streams."),
    REASONING(how="Not in the reference: the text between the model's reasoning markers."),
    TOKEN_LOGPROBS(how="Not in the reference: with `logprobs` as an extra parameter."),
    REFUSAL(how="Not in the reference."),
    TOP_LOGPROBS(how="Not in the reference: with `top_logprobs` as an extra parameter."),
    PROMPT_LOGPROBS(fields="prompt_logprobs"),
    TOKEN_IDS(fields="choices[].token_ids prompt_token_ids"),
    Answer(
        fields="error message status",
        how="In every error; a 401, 404 or 429 has no other fields. The header `x-ms-error-code` has the code too.",
    ),
    Answer(
        fields="code detail detail.loc detail.value",
        how="In a 422: the place in the body, and the value.",
    ),
    Answer(fields="param", how="In a 400 and others."),
)

AZURE = Interface(
    title="Azure AI model inference",
    route="POST /chat/completions",
    about="Also under `/models`. Errors that the reference calls unprocessable have the status 422, and violations "
    "of the API's own rules 400.",
    dialect=lambda query, headers: Azure(query, headers, lambda: ("m",)),
    plain={"messages": [USER]},
    query={"api-version": "2024-05-01-preview"},
    requests=(*_ADDRESS, *_REFERENCE, *_EXTRAS),
    answers=_ANSWERS,
)
