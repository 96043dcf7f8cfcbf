"""The prompt process: ``python -m worker.prompt.child '<PromptOptions as JSON>'``, started by the supervisor.

It is single-threaded and prepares one prompt at a time. The supervisor kills it when a prompt takes too long.
"""

import logging
import sys

import msgspec

from shared.protocol.errors import Problem, ProblemKind, RequestRefused
from shared.protocol.request import Tokenization
from worker.grammar.size import check_size
from worker.prompt.interface import Prepare, Prepared, PromptOptions, PromptReady, PromptRefused, PromptReply
from worker.prompt.maker import PromptMaker
from worker.prompt.template import ChatTemplateError
from worker.prompt.truncation import fit_prompt
from worker.subprocess.channel import ChildChannel
from worker.subprocess.messages import LoadFailed

_log = logging.getLogger(__name__)


def main() -> int:
    """Prepare prompts until the supervisor closes the channel. Returns the exit code."""
    options = msgspec.json.decode(sys.argv[1], type=PromptOptions)
    channel: ChildChannel[Prepare, PromptReply] = ChildChannel.inherited(msgspec.msgpack.Decoder(Prepare))
    try:
        maker = _load(options)
    except ChatTemplateError as error:
        origin = "given by --chat-template" if options.chat_template else f"of {options.path}"
        channel.send(LoadFailed(f"{error} It is the one {origin}."))
        return 1
    except Exception as error:
        channel.send(LoadFailed(f"The tokenizer of {options.path} can't be loaded: {error}"))
        return 1
    channel.send(PromptReady(options.context_length))
    preparation = _Preparation(maker, options)
    channel.serve(preparation.reply)
    return 0


def _load(options: PromptOptions) -> PromptMaker:
    # Imported on demand: a simulated worker must run without OpenVINO installed.
    if options.engine == "simulated":
        from worker.prompt.simulated import SimulatedPromptMaker

        return SimulatedPromptMaker(context_length=options.context_length)
    from worker.prompt.openvino import load_prompt_maker

    return load_prompt_maker(options.path, context_length=options.context_length, chat_template=options.chat_template)


class _Preparation:
    """Prepares prompts with a model's prompt maker."""

    def __init__(self, maker: PromptMaker, options: PromptOptions) -> None:
        self._maker = maker
        self._schema_bytes = options.schema_bytes

    def reply(self, message: Prepare) -> PromptReply:
        """Return the prepared prompt, or the problem with it."""
        try:
            check_size(message.request, self._schema_bytes)
            if message.request.tokenization is not None:
                return self._tokenize(message, message.request.tokenization)
            plan = self._maker.plan(message.request)
            bad_word_tokens = self._maker.bad_word_tokens(message.request.sampling.bad_words)
            prompt = fit_prompt(message.request, self._maker.prepare)
            return Prepared(message.number, prompt.tokens, plan, prompt.images, bad_word_tokens=bad_word_tokens)
        except RequestRefused as refusal:
            return PromptRefused(message.number, refusal.problem)
        except Exception as error:
            # An unexpected error in one request must not end the process.
            _log.exception("preparing a prompt failed")
            text = f"The prompt could not be prepared: {type(error).__name__}."
            return PromptRefused(message.number, Problem(kind=ProblemKind.INTERNAL, message=text))

    def _tokenize(self, message: Prepare, tokenization: Tokenization) -> Prepared:
        """Return the tokens of a tokenization request."""
        tokens = self._maker.prepare(message.request).tokens
        strings = tuple(map(self._maker.token_text, tokens)) if tokenization.strings else ()
        text = self._maker.decode(tokens) if tokenization.text else ""
        return Prepared(message.number, tokens, strings=strings, text=text)


if __name__ == "__main__":
    sys.exit(main())
