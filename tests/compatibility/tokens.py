"""vLLM's ``/tokenize`` and ``/detokenize``."""

from collections.abc import Callable, Mapping

from api.dialects.base.interface import Dialect, ResponseEncoder
from api.dialects.openai.tokens import parse_detokenize, parse_tokenize, render_text, render_tokens
from shared.protocol.events import Tokenized
from shared.protocol.request import ChatRequest
from tests.compatibility.adapter import Document
from tests.compatibility.common import ERROR
from tests.compatibility.rows import Answer, Interface, Request

_MESSAGES = [{"role": "user", "content": "Hi"}]
_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
_ABOUT = "As in vLLM; see [tokens](tokens.md). "


class _Tokens(Dialect):
    """A parser and a renderer as a dialect."""

    def __init__(
        self, parse: Callable[[bytes], ChatRequest], render: Callable[[ChatRequest, Tokenized], bytes]
    ) -> None:
        self._parse, self._render = parse, render

    def parse(self, body: bytes) -> ChatRequest:
        return self._parse(body)

    def render(self, request: ChatRequest, *, response_id: str, created: int, fingerprint: str) -> ResponseEncoder:
        return Document(self._render(request, Tokenized((1, 2), ("H", "i"), "Hi", 2048)))


def _tokenize(query: Mapping[str, str], headers: Mapping[str, str]) -> Dialect:
    return _Tokens(parse_tokenize, render_tokens)


def _detokenize(query: Mapping[str, str], headers: Mapping[str, str]) -> Dialect:
    return _Tokens(parse_detokenize, render_text)


TOKENIZE = Interface(
    title="vLLM: tokens of texts and messages",
    route="POST /tokenize",
    about=_ABOUT + "A worker of the model computes the tokens.",
    dialect=_tokenize,
    plain={"model": "m"},
    requests=(
        Request(
            fields="model prompt",
            body={"prompt": "Hi"},
            how="One text. The spelling of a special token in it becomes that token.",
        ),
        Request(
            fields="messages tools chat_template_kwargs",
            body={"messages": _MESSAGES, "tools": _TOOLS, "chat_template_kwargs": {}},
            how="Rendered as under `/v1/chat/completions`.",
        ),
        Request(
            fields="prompt messages",
            when="both",
            body={"prompt": "Hi", "messages": _MESSAGES},
        ),
        Request(
            fields="add_special_tokens",
            body={"prompt": "Hi", "add_special_tokens": False},
            how="Default: true for `prompt`, false for `messages`.",
        ),
        Request(
            fields="add_generation_prompt",
            body={"messages": _MESSAGES, "add_generation_prompt": False},
            how="Default: true.",
        ),
        Request(
            fields="add_generation_prompt",
            when="with prompt",
            body={"prompt": "Hi", "add_generation_prompt": True},
        ),
        Request(
            fields="return_token_strs",
            body={"prompt": "Hi", "return_token_strs": True},
            how="`token_strs` has the text of each token; otherwise it is null.",
        ),
    ),
    answers=(
        Answer(
            fields="tokens count token_strs",
            how="Token ids, their number, and their texts if requested.",
        ),
        Answer(
            fields="max_model_len",
            how="The context length.",
        ),
        ERROR(how="As under `/v1/chat/completions`."),
    ),
)

DETOKENIZE = Interface(
    title="vLLM: the text of tokens",
    route="POST /detokenize",
    about=_ABOUT.strip(),
    dialect=_detokenize,
    plain={"model": "m", "tokens": [1, 2]},
    requests=(Request(fields="model tokens", how="Ids of the model's vocabulary; others get a 400."),),
    answers=(
        Answer(fields="prompt", how="The text, with special tokens."),
        ERROR(how="As under `/v1/chat/completions`."),
    ),
)
