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
    ),
    Answer(
        fields="choices choices[].index choices[].finish_reason",
        how="`stop`, `length`, `tool_calls` or `function_call`; null in chunks before the last.",
    ),
    TEXT(
        how="The text, whole or in chunks.",
    ),
    REASONING(
        how="Not OpenAI's: the text between the model's reasoning markers; omitted if there is none.",
    ),
    TOOL_CALLS(),
    Answer(
        fields="choices[].message.function_call choices[].message.function_call.name "
        "choices[].message.function_call.arguments choices[].delta.function_call "
        "choices[].delta.function_call.name choices[].delta.function_call.arguments",
        how="If the request has `functions`.",
    ),
    Answer(
        fields="choices[].message.tool_calls[].custom choices[].message.tool_calls[].custom.name "
        "choices[].message.tool_calls[].custom.input",
        how="Custom tools are refused.",
    ),
    REFUSAL(how="The served models have no separate form of refusals."),
    Answer(
        fields="choices[].logprobs.refusal[].token choices[].logprobs.refusal[].logprob "
        "choices[].logprobs.refusal[].bytes choices[].logprobs.refusal[].top_logprobs "
        "choices[].logprobs.refusal[].top_logprobs[].token choices[].logprobs.refusal[].top_logprobs[].logprob "
        "choices[].logprobs.refusal[].top_logprobs[].bytes",
        how="No text is a refusal.",
    ),
    TOKEN_LOGPROBS(
        how="One for each token of the text.",
    ),
    TOP_LOGPROBS(),
    PROMPT_LOGPROBS(fields="prompt_logprobs"),
    TOKEN_IDS(fields="choices[].token_ids prompt_token_ids"),
    DETAILED_USAGE(
        how=f"The prompt counts once, for any number of choices. {CACHED_TOKENS}",
    ),
    USAGE_OF_OTHER_KINDS(how="Audio and predictions are refused."),
    OPTIONAL_USAGE(),
    Answer(
        fields="service_tier",
        how="The tier that was used, if the request names one.",
    ),
    Answer(
        fields="obfuscation",
        how="In streams, if requested.",
    ),
    Answer(
        fields="metadata",
        how="In the stored completion, not in the response itself.",
    ),
    Answer(
        fields="choices[].message.annotations choices[].message.annotations[].type "
        "choices[].message.annotations[].url_citation choices[].message.annotations[].url_citation.url "
        "choices[].message.annotations[].url_citation.title "
        "choices[].message.annotations[].url_citation.start_index "
        "choices[].message.annotations[].url_citation.end_index",
        how="Always empty: there is no web search.",
    ),
    Answer(
        fields="choices[].message.audio choices[].message.audio.id choices[].message.audio.data "
        "choices[].message.audio.expires_at choices[].message.audio.transcript choices[].delta.audio "
        "choices[].delta.audio.id choices[].delta.audio.data choices[].delta.audio.expires_at "
        "choices[].delta.audio.transcript",
        how="Audio is refused.",
    ),
    Answer(fields=_moderation(), how="There is no moderation model."),
    ERROR(
        how="In every error response; in a stream, an event before `[DONE]`.",
    ),
)
