"""The prompt process: ``python -m worker.prompt.child '<PromptOptions as JSON>'``, started by the supervisor.

It is single-threaded and prepares one prompt at a time. The supervisor kills it when a prompt takes too long.
"""

import logging
import sys
from typing import TYPE_CHECKING

import msgspec

from shared.protocol.errors import Problem, ProblemKind, RequestRefused, refuse
from shared.protocol.request import Tokenization
from worker.engine.interface import PlacedImage
from worker.grammar.size import check_size
from worker.prompt.interface import Prepare, Prepared, PromptOptions, PromptReady, PromptRefused, PromptReply
from worker.prompt.maker import Prompt, PromptMaker
from worker.prompt.template import ChatTemplateError
from worker.subprocess.channel import ChildChannel
from worker.subprocess.messages import LoadFailed

if TYPE_CHECKING:
    from worker.prompt.images import ImageDecoder

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
        self._options = options
        self._decoder: ImageDecoder | None = None

    def reply(self, message: Prepare) -> PromptReply:
        """Return the prepared prompt, or the problem with it."""
        try:
            check_size(message.request, self._options.schema_bytes)
            if message.request.tokenization is not None:
                return self._tokens(message, message.request.tokenization)
            plan = self._maker.plan(message.request)
            banned = self._maker.spellings(message.request.sampling.bad_words)
            prompt = self._maker.prepare(message.request)
            images = self._images(message, prompt) if prompt.images else ()
            return Prepared(message.number, prompt.tokens, plan, images, banned=banned)
        except RequestRefused as refusal:
            return PromptRefused(message.number, refusal.problem)
        except Exception as error:
            # An unexpected error in one request must not end the process.
            _log.exception("preparing a prompt failed")
            text = f"The prompt could not be prepared: {type(error).__name__}."
            return PromptRefused(message.number, Problem(kind=ProblemKind.INTERNAL, message=text))

    def _tokens(self, message: Prepare, wanted: Tokenization) -> Prepared:
        """Return the tokens of a request for them."""
        tokens = self._maker.prepare(message.request).tokens
        strings = tuple(map(self._maker.text_of_token, tokens)) if wanted.strings else ()
        text = self._maker.decode(tokens) if wanted.text else ""
        return Prepared(message.number, tokens, strings=strings, text=text)

    def _images(self, message: Prepare, prompt: Prompt) -> tuple[PlacedImage, ...]:
        """Return the decoded images in the order of their places. Raises :class:`RequestRefused`."""
        # Imported on demand: most models take no images.
        from worker.prompt.images import ImageDecoder, ImageError

        if self._decoder is None:
            self._decoder = ImageDecoder(file_pixels=self._options.file_pixels)
        # Vision encoders may compare all images of a request with each other, at a quadratic cost.
        pixels = max(1, self._options.image_pixels // len(prompt.images))
        decoded = []
        for image in message.request.images:
            file = message.files[image.digest]
            try:
                decoded.append(self._decoder.decode(file, digest=image.digest, low=image.low, pixels=pixels))
            except ImageError as error:
                raise refuse(ProblemKind.INVALID, f"The image {error}", param=image.param) from None
        placed = ((decoded[number], at) for number, at in prompt.images)
        return tuple(PlacedImage(at, image.width, image.height, image.pixels) for image, at in placed)


if __name__ == "__main__":
    sys.exit(main())
