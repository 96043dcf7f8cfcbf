"""The tokens of texts to embed, or of pairs of texts to score, whole or cut where the request says so."""

import os
from base64 import b64decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shared.protocol.errors import ContextExcess, Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.request import ChatRequest, Embed, Rerank, Tokenize
from worker.model.embedding import OWN, EmbeddingFiles, VectorSettings, read_files
from worker.model.files import read_config
from worker.model.source import ModelError
from worker.prompt.messages import Prepared


class EmbeddingTokens:
    """The tokenizer of an embedding model, and what else its files say of texts."""

    def __init__(self, files: EmbeddingFiles, limit: int, given: VectorSettings = OWN) -> None:
        """``limit`` is the maximum length of a text in tokens. Raises :class:`ModelError` and :class:`RuntimeError`."""
        # Native, and not needed before a model is.
        import tokenizers

        os.environ["TOKENIZERS_PARALLELISM"] = "false"  # no threads for one text
        try:
            found = tokenizers.Tokenizer.from_file(str(files.folder / "tokenizer.json"))
        except Exception as error:  # the package raises no other class
            raise RuntimeError(f"{files.folder / 'tokenizer.json'} can't be read: {error}") from error
        # They are of the model's first training. Texts would be padded and cut without a word.
        found.no_padding()
        found.no_truncation()
        self.tokenizer = found
        self._files = files
        self._limit = limit
        self._size = min(found.get_vocab_size(), int(files.config.get("vocab_size") or found.get_vocab_size()))
        self._added = found.num_special_tokens_to_add(bool(files.scores))
        if files.scores and not self._added:
            raise ModelError(f"{files.folder / 'tokenizer.json'} does not join pairs of texts, which rerankers read.")
        inputs = read_config(files.folder / "tokenizer_config.json").get("model_input_names")
        self._typed = inputs is None or "token_type_ids" in inputs
        self._arrays, self._cut = given.token_arrays, given.truncate
        self._others = _cl100k(files.folder / "cl100k_base.tiktoken") if self._arrays == "cl100k" else {}

    def encode(self, request: ChatRequest, work: Embed) -> list[Sequence[int]]:
        """Return the tokens of each text. Raises :class:`RequestRefused`, which names the text by its index."""
        self._check_dimensions(work.dimensions)
        return [self._one(text, index, work) for index, text in enumerate(request.prompts, work.first)]

    def pairs(self, request: ChatRequest, work: Rerank) -> Prepared:
        """Return the tokens of each pair of a query and a document. Raises :class:`RequestRefused`, as above."""
        several = len(work.queries) > 1
        prefix = self._files.prompts.get("query", "")
        queries = [
            self._tokens(text, f"{work.query_param}[{index}]" if several else work.query_param, prefix)
            for index, text in enumerate(work.queries, work.first)
        ]
        tokens: list[int] = []
        lengths, firsts, items = [], [], []
        for item, document in enumerate(request.prompts):
            assert isinstance(document, str)
            query = item if several else 0
            param = f"{work.param}[{work.first + item}]" if work.is_list else work.param
            for pair in self._pairs(work.queries[query], queries[query], document, param, work):
                tokens += pair.ids
                lengths.append(len(pair.ids))
                firsts.append(pair.type_ids.index(1) if self._typed and 1 in pair.type_ids else len(pair.ids))
                items.append(item)
        return Prepared(tuple(tokens), lengths=tuple(lengths), firsts=tuple(firsts), items=tuple(items))

    def _pairs(self, text: str, query: Any, document: str, param: str, work: Rerank) -> Iterator[Any]:
        """Yield a query with each part of a document. Of two that are too long, the longer one is cut, or both to a
        half, as transformers does."""
        limit = min(self._limit, work.cut) if work.cut > 0 else self._limit
        room = limit - self._added
        found = self._tokens(document, param, self._files.prompts.get("document", ""))
        if work.document_tokens:
            found.truncate(work.document_tokens)
        length = len(query) + len(found)
        if length > room:
            if not (work.chunks or self._cut) or room < 2:
                raise self._too_long(param, length + self._added, limit)
            most = max((room + (len(query) > len(found))) // 2, room - len(found))
            if len(query) > most:
                query = self._tokens(text, param, self._files.prompts.get("query", ""))
                query.truncate(most)
            found.truncate(room - len(query))
        for part in [found, *found.overflowing][: max(1, work.chunks)]:
            yield self.tokenizer.post_process(query, part, True)

    def _tokens(self, text: str, param: str, prefix: str) -> Any:
        """Return the encoding of a text behind ``prefix``, without special tokens. Raises :class:`RequestRefused` for
        an empty one."""
        whole = prefix + text
        whole = whole.lower() if self._files.lowercase else whole
        # Without the tokens' offsets, which take a sixth of the time.
        (encoding,) = self.tokenizer.encode_batch_fast([whole], add_special_tokens=False)
        if not text.strip() or len(encoding) == 0:
            raise _empty(param)
        return encoding

    def prompt(self, request: ChatRequest, work: Tokenize) -> Prepared:
        """Return the tokens of a text, or the text of tokens. Raises :class:`RequestRefused`."""
        if request.prompt is None:
            raise refuse(ProblemKind.INVALID, "This model has no chats.", param="messages")
        if isinstance(request.prompt, str):
            ids = tuple(self.tokenizer.encode(request.prompt, add_special_tokens=work.add_special_tokens).ids)
        else:
            ids = request.prompt
        strings = tuple(self.tokenizer.id_to_token(token) or "" for token in ids) if work.strings else ()
        text = self.tokenizer.decode(ids, skip_special_tokens=False) if work.text else ""
        return Prepared(ids, strings=strings, text=text)

    def _check_dimensions(self, wanted: int) -> None:
        if wanted in (0, *self._files.dimensions):
            return
        allowed = self._files.dimensions
        some = f"{allowed[0]} to {allowed[-1]}" if len(allowed) > 8 else ", ".join(map(str, allowed))
        message = f"Invalid 'dimensions': this model does not have vectors of {wanted} dimensions, but of {some}."
        raise refuse(ProblemKind.INVALID, message, param="dimensions", code="invalid_value")

    def _one(self, text: str | Sequence[int], index: int, work: Embed) -> Sequence[int]:
        param = f"{work.param}[{index}]" if work.is_list else work.param
        limit = min(self._limit, work.cut) if work.cut > 0 else self._limit
        if self._others and not work.own_ids and not isinstance(text, str):
            text = self._text(text, param)
        if not isinstance(text, str):
            return self._ids(text, param, limit, work)
        # Models with a prefix for queries only have none for documents.
        prefix = self._files.prompts.get(work.prefix, "") if work.prefix else self._files.default_prompt
        encoding = self._tokens(text, param, prefix)
        room = limit - self._added
        if len(encoding) > room:
            if not (work.cut or self._cut) or room < 1:
                raise self._too_long(param, len(encoding) + self._added, limit)
            encoding.truncate(room)
        return list(self.tokenizer.post_process(encoding, None, True).ids)

    def _ids(self, ids: Sequence[int], param: str, limit: int, work: Embed) -> Sequence[int]:
        if not work.own_ids and self._arrays != "accept":
            # OpenAI's clients may send the ids of OpenAI's tokenizers, of which these would be other texts.
            message = (
                f"Invalid '{param}': token ids mean other texts to other models. Send text (in LangChain, "
                "check_embedding_ctx_length=False). If these are ids of this model, with the special ones, say so: "
                "'add_special_tokens': false."
            )
            raise refuse(ProblemKind.INVALID, message, param=param)
        if not ids:
            raise _empty(param)
        for place, token in enumerate(ids):
            if not 0 <= token < self._size:
                raise _no_token(param, place, f"{token} is no token of this model, which has {self._size}")
        if len(ids) > limit:
            if not (work.cut or self._cut):
                raise self._too_long(param, len(ids), limit)
            ids = ids[:limit]
        return ids

    def _text(self, ids: Sequence[int], param: str) -> str:
        """Return the text of OpenAI's tokens, without the parts of characters that were cut at its ends."""
        for place, token in enumerate(ids):
            if token not in self._others:
                raise _no_token(param, place, f"{token} is no token of cl100k_base with a text")
        return b"".join(map(self._others.__getitem__, ids)).decode(errors="ignore")

    def _too_long(self, param: str, length: int, limit: int) -> RequestRefused:
        message = (
            f"This model's maximum context length is {limit} tokens. However, '{param}' has {length} tokens, with the "
            "special ones. Please shorten it, or have it cut ('truncate_prompt_tokens': -1)."
        )
        excess = ContextExcess(prompt=length, limit=limit)
        return RequestRefused(Problem(kind=ProblemKind.CONTEXT_LENGTH, message=message, param=param, excess=excess))


def _no_token(param: str, place: int, why: str) -> RequestRefused:
    return refuse(ProblemKind.INVALID, f"Invalid '{param}[{place}]': {why}.", param=f"{param}[{place}]")


def _empty(param: str) -> RequestRefused:
    message = f"Invalid '{param}': the text is empty. Expected a text with at least one token."
    return refuse(ProblemKind.INVALID, message, param=param, code="empty_string")


def _cl100k(file: Path) -> dict[int, bytes]:
    """Return the texts of OpenAI's tokens, from the ``file`` that tiktoken reads. Raises :class:`ModelError`."""
    try:
        lines = (line.split() for line in file.read_bytes().splitlines())
        return {int(rank): b64decode(text) for text, rank in lines}
    except (OSError, ValueError) as error:
        raise ModelError(
            f"token_arrays = 'cl100k' needs {file.name} in {file.parent}, as tiktoken downloads it: {error}"
        ) from error


def open_tokens(path: str, context_length: int, given: VectorSettings = OWN) -> EmbeddingTokens:
    """Return the tokenizer of the model at ``path``. Raises :class:`ModelError` and :class:`RuntimeError`."""
    files = read_files(Path(path), given)
    return EmbeddingTokens(files, min(files.max_tokens, context_length), given)
