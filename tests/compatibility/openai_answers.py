"""The answers of OpenAI's chat completions: every field of the newest official SDK's types."""

from tests.compatibility.common import (
    CACHED_TOKENS,
    DETAILED_USAGE,
    ERROR,
    OPTIONAL_USAGE,
    PROMPT_LOGPROBS,
    REASONING,
    REFUSAL,
    TEXT,
    TOKEN_IDS,
    TOKEN_LOGPROBS,
    TOOL_CALLS,
    TOP_LOGPROBS,
    USAGE_OF_OTHER_KINDS,
)
from tests.compatibility.rows import Answer

_RENDER = "tests/unit/api/dialects/test_openai_render.py::"
_A_COMPLETION = _RENDER + "test_a_completion"
_A_STREAM = _RENDER + "test_a_stream"

_MODERATION = ("input", "output")
_RESULT = ("categories", "category_applied_input_types", "category_scores", "flagged", "model", "type")


def _moderation() -> str:
    """The fields of both moderation reports, which are alike."""
    names = [
        f"moderation.{side}{rest}"
        for side in _MODERATION
        for rest in (
            "",
            ".type",
            ".code",
            ".message",
            ".model",
            ".results",
            *(f".results[].{name}" for name in _RESULT),
        )
    ]
    return " ".join(("moderation", *names))


CHAT_ANSWERS = (
    Answer(
        fields="id object created model system_fingerprint",
        how="`system_fingerprint` names the engine and the model.",
        test=_A_COMPLETION,
    ),
    Answer(
        fields="choices choices[].index choices[].finish_reason",
        how="`stop`, `length`, `tool_calls` or `function_call`; null in chunks before the last.",
        test=_A_STREAM,
    ),
    TEXT(
        how="The text, whole or in chunks.",
        test="tests/acceptance/test_openai_sdk.py::test_the_stream_helper",
    ),
    REASONING(
        how="Not OpenAI's: the text between the model's reasoning markers; omitted if there is none.",
        test="tests/integration/test_reasoning.py::test_it_streams_before_the_content",
    ),
    TOOL_CALLS(test="tests/integration/test_openai_routes.py::test_a_tool_call_streams"),
    Answer(
        fields="choices[].message.function_call choices[].message.function_call.name "
        "choices[].message.function_call.arguments choices[].delta.function_call "
        "choices[].delta.function_call.name choices[].delta.function_call.arguments",
        how="If the request has `functions`.",
        test=_RENDER + "test_a_call_in_the_deprecated_form",
    ),
    Answer(
        fields="choices[].message.tool_calls[].custom choices[].message.tool_calls[].custom.name "
        "choices[].message.tool_calls[].custom.input",
        how="Custom tools are refused.",
        test="tests/unit/api/dialects/test_openai_parse.py::test_what_is_not_served_inside_a_field_is_refused_by_path",
    ),
    REFUSAL(how="The served models have no separate form of refusals.", test=_A_COMPLETION),
    Answer(
        fields="choices[].logprobs.refusal[].token choices[].logprobs.refusal[].logprob "
        "choices[].logprobs.refusal[].bytes choices[].logprobs.refusal[].top_logprobs "
        "choices[].logprobs.refusal[].top_logprobs[].token choices[].logprobs.refusal[].top_logprobs[].logprob "
        "choices[].logprobs.refusal[].top_logprobs[].bytes",
        how="No text is a refusal.",
        test=_RENDER + "test_log_probabilities",
    ),
    TOKEN_LOGPROBS(
        how="One for each token of the text.",
        test="tests/acceptance/test_openai_sdk.py::test_log_probabilities_fit_the_text",
    ),
    TOP_LOGPROBS(),
    PROMPT_LOGPROBS(fields="prompt_logprobs"),
    TOKEN_IDS(fields="choices[].token_ids prompt_token_ids"),
    DETAILED_USAGE(
        how=f"The prompt counts once, for any number of choices. {CACHED_TOKENS}",
        test="tests/unit/api/chat/test_choices.py::test_choices_of_one_request_share_its_prompt",
    ),
    USAGE_OF_OTHER_KINDS(how="Audio and predictions are refused."),
    OPTIONAL_USAGE(test=_A_COMPLETION),
    Answer(
        fields="service_tier",
        how="The tier that was used, if the request names one.",
        test=_RENDER + "test_the_tier_is_returned_if_the_request_names_one",
    ),
    Answer(
        fields="obfuscation",
        how="In streams, if requested.",
        test="tests/integration/test_openai_routes.py::test_obfuscation",
    ),
    Answer(
        fields="metadata",
        how="In the stored completion, not in the response itself.",
        test="tests/unit/api/stored/test_store.py::test_what_is_stored_is_found_for_a_while",
    ),
    Answer(
        fields="choices[].message.annotations choices[].message.annotations[].type "
        "choices[].message.annotations[].url_citation choices[].message.annotations[].url_citation.url "
        "choices[].message.annotations[].url_citation.title "
        "choices[].message.annotations[].url_citation.start_index "
        "choices[].message.annotations[].url_citation.end_index",
        how="Always empty: there is no web search.",
        test=_A_COMPLETION,
    ),
    Answer(
        fields="choices[].message.audio choices[].message.audio.id choices[].message.audio.data "
        "choices[].message.audio.expires_at choices[].message.audio.transcript choices[].delta.audio "
        "choices[].delta.audio.id choices[].delta.audio.data choices[].delta.audio.expires_at "
        "choices[].delta.audio.transcript",
        how="Audio is refused.",
        test=_A_COMPLETION,
    ),
    Answer(fields=_moderation(), how="There is no moderation model.", test=_A_COMPLETION),
    ERROR(
        how="In every error response; in a stream, an event before `[DONE]`.",
        test=_RENDER + "test_every_kind_of_problem_has_a_status_and_a_body",
    ),
)
