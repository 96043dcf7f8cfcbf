"""The fields of vLLM that chats and plain completions under ``/v1`` share."""

from tests.compatibility.common import SCHEMA
from tests.compatibility.rows import Request

_NOTE = "vLLM's, in `extra_body`. "

VLLM_FIELDS = (
    Request(
        fields="prompt_logprobs",
        body={"prompt_logprobs": 1},
        how=_NOTE + "0 to 20, in vLLM's form, not in streams. Needs `--logits`.",
    ),
    Request(
        fields="top_k min_p repetition_penalty",
        body={"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1},
        how=_NOTE + "Applied by the engine. `top_k` 0 or -1 disables it.",
    ),
    Request(
        fields="allowed_token_ids bad_words",
        body={"allowed_token_ids": [1, 2], "bad_words": ["a word"]},
        how=_NOTE + "Other tokens are masked before sampling; a grammar takes precedence. Needs `--logits`.",
    ),
    Request(
        fields="return_token_ids",
        body={"return_token_ids": True},
        how=_NOTE + "`token_ids` and `prompt_token_ids`; in streams, in separate chunks.",
    ),
    Request(
        fields="min_tokens ignore_eos stop_token_ids",
        body={"min_tokens": 1, "ignore_eos": True, "stop_token_ids": [1]},
        how=_NOTE + "They determine when a response ends.",
    ),
    Request(
        fields="include_stop_str_in_output",
        body={"include_stop_str_in_output": True},
        how=_NOTE + "`true`: the text includes the stop string or token.",
    ),
    Request(
        fields="skip_special_tokens",
        body={"skip_special_tokens": False},
        how=_NOTE + "`false`: the text includes them, and tool calls and reasoning are not parsed.",
    ),
    Request(
        fields="structured_outputs structured_outputs.json structured_outputs.disable_any_whitespace "
        "structured_outputs.disable_fallback",
        body={"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": False, "disable_fallback": True}},
        how=_NOTE + "One form of `json`, `regex`, `choice`, `grammar`, `json_object` and `structural_tag`. "
        "`disable_any_whitespace: true` is refused.",
    ),
    Request(
        fields="structured_outputs structured_outputs.regex",
        when="regex",
        body={"structured_outputs": {"regex": "a+"}},
        how=_NOTE,
    ),
    Request(
        fields="structured_outputs structured_outputs.choice",
        when="choice",
        body={"structured_outputs": {"choice": ["a", "b"]}},
        how=_NOTE,
    ),
    Request(
        fields="structured_outputs structured_outputs.grammar",
        when="grammar",
        body={"structured_outputs": {"grammar": 'root ::= "a"'}},
        how=_NOTE + "EBNF.",
    ),
    Request(
        fields="structured_outputs structured_outputs.json_object",
        when="json_object",
        body={"structured_outputs": {"json_object": True}},
        how=_NOTE,
    ),
    Request(
        fields="structured_outputs structured_outputs.structural_tag",
        when="structural_tag",
        body={"structured_outputs": {"structural_tag": '{"type":"structural_tag","format":{"type":"any_text"}}'}},
        how=_NOTE + "JSON text with a `format`, as XGrammar documents it.",
    ),
    *(
        Request(fields=field, body={field: value}, how=_NOTE + "An older name.")
        for field, value in (
            ("guided_json", SCHEMA),
            ("guided_regex", "a+"),
            ("guided_choice", ["a"]),
            ("guided_grammar", 'root ::= "a"'),
        )
    ),
)
