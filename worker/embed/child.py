"""The prompt process of embedding models and rerankers: ``python -m worker.embed.child '<PromptOptions as JSON>'``."""

import sys
from collections.abc import Callable
from itertools import chain

import msgspec

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import ChatRequest, Embed, Rerank, Tokenize
from worker.embed.tokens import open_tokens
from worker.processes.channel import serve
from worker.prompt.messages import Prepared, PromptOptions


def _load(options: PromptOptions) -> Callable[[ChatRequest], Prepared]:
    tokens = open_tokens(options.path, options.context_length, options.vectors)

    def prepare(request: ChatRequest) -> Prepared:
        match request.work:
            case Rerank() as work:
                return tokens.pairs(request, work)
            case Embed() as work:
                texts = tokens.encode(request, work)
                return Prepared(tuple(chain.from_iterable(texts)), lengths=tuple(map(len, texts)))
            case Tokenize(describe=True):
                return Prepared((), strings=("", ""))
            case Tokenize() as work:
                return tokens.prompt(request, work)
        raise refuse(ProblemKind.INVALID, "This model generates no text.", param="model")

    return prepare


if __name__ == "__main__":
    sys.exit(serve(PromptOptions, msgspec.msgpack.Decoder(ChatRequest), _load))
