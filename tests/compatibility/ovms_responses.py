"""The model server's responses: the rows of OpenAI's, with its own fields, and without what is about storage."""

from dataclasses import replace

from api.dialects.ovms.responses import STORED_FIELDS, ModelServerResponses
from tests.compatibility.common import FUNCTION, NAMED_TOOL, USER
from tests.compatibility.responses import ANSWERS, REQUESTS
from tests.compatibility.rows import Interface, Request

_OWN = (
    Request(
        fields="stop ignore_eos include_stop_str_in_output skip_special_tokens logprobs n",
        body={
            "stop": ["a"],
            "ignore_eos": True,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "logprobs": True,
            "n": 1,
        },
        how="As under `/v3/chat/completions`. There is one choice.",
    ),
    Request(
        fields="min_p top_k repetition_penalty seed best_of length_penalty",
        body={"min_p": 0.1, "top_k": 5, "repetition_penalty": 1.1, "seed": 7, "best_of": 2, "length_penalty": 0.5},
        how="Applied by the engine. `top_k`: default 40. `best_of` is the beam width.",
    ),
    Request(
        fields="num_assistant_tokens max_ngram_size",
        body={"num_assistant_tokens": 5, "max_ngram_size": 3},
        how="Speculative decoding and prompt lookup.",
    ),
    Request(
        fields="assistant_confidence_threshold",
        body={"assistant_confidence_threshold": 0.4},
        how="Speculative decoding.",
    ),
    Request(
        fields="chat_template_kwargs reasoning",
        body={"chat_template_kwargs": {"a": 1}, "reasoning": {"effort": "low"}},
        how="Variables of the chat template. `reasoning` sets `enable_thinking` too.",
    ),
    Request(
        fields="response_format response_format.type",
        body={"response_format": {"type": "json_object"}},
        how="As `text.format`, also in the form of chat completions, and XGrammar's structural tags.",
    ),
    Request(
        fields="tools[].function tool_choice.function",
        body={"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": NAMED_TOOL},
        how="The form of chat completions is accepted too.",
    ),
    Request(
        fields="input[].id",
        when="item_reference",
        body={"input": [{"type": "item_reference", "id": "m"}]},
    ),
    *(
        Request(fields=field, body={field: value})
        for field, value in (("background", True), ("previous_response_id", "r"), ("store", True))
    ),
)

MODEL_SERVER_RESPONSES = Interface(
    title="OpenVINO Model Server responses",
    route="POST /v3/responses",
    about="OpenAI's fields, except those that need stored responses, and the model server's own.",
    dialect=lambda query, headers: ModelServerResponses(),
    plain={"model": "m", "input": [USER]},
    requests=(
        *_OWN,
        *(
            replace(row)
            for row in REQUESTS
            if not {*STORED_FIELDS} & {*row.paths} and row.when not in ("item_reference", "hosted tools")
        ),
    ),
    answers=ANSWERS,
)
