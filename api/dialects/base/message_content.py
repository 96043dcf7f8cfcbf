"""The content of a message in the internal form: text, and images with their places in it."""

import re

from shared.protocol.errors import ProblemKind, refuse
from shared.protocol.request import Image

_OTHER_SCHEME = re.compile(r"(?!(?:https?|data):)([a-z][a-z0-9+.-]*):", re.IGNORECASE)


class MessageContent:
    """Collects the parts of a message. Adjacent texts are joined with line breaks.

    Text chat templates expect one string, and render a list as its Python repr. vLLM, llama.cpp's server and OpenVINO
    Model Server also join parts with a line break, so the prompt is the same on all of them.
    """

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._images: list[Image] = []
        self._size = 0
        self._after_text = False

    def add_text(self, text: str) -> None:
        """Append a text part."""
        self._texts.append(f"\n{text}" if self._after_text else text)
        self._size += len(self._texts[-1])
        self._after_text = True

    def add_image(self, url: str, param: str, *, low: bool = False) -> None:
        """Append an image. ``param`` is the path of its part in the request, ``low`` whether low detail is enough."""
        self._images.append(Image(at=self._size, param=param, low=low, url=url))
        self.add_other()

    def add_other(self) -> None:
        """Note a part that is neither: the texts around it are not adjacent."""
        self._after_text = False

    @property
    def empty(self) -> bool:
        """Whether there is no text part and no image."""
        return not (self._texts or self._images)

    @property
    def text(self) -> str:
        """All texts."""
        return "".join(self._texts)

    @property
    def images(self) -> tuple[Image, ...]:
        """All images, in order."""
        return tuple(self._images)


def check_scheme(url: str, param: str) -> None:
    """Raise :class:`RequestRefused`, which names ``param``, for a URL with a scheme that no image can have.

    Among them is that of local files (:data:`shared.protocol.request.LOCAL`), which only the service itself writes.
    """
    if scheme := _OTHER_SCHEME.match(url):
        raise refuse(
            ProblemKind.INVALID,
            f"Invalid image: the URL has the scheme '{scheme[1][:64]}': expected https, http or data.",
            param=param,
        )
