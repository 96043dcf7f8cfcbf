"""The schemes of image URLs that clients may send."""

import re

from shared.protocol.errors import ProblemKind, refuse

_OTHER_SCHEME = re.compile(r"(?!(?:https?|data):)([a-z][a-z0-9+.-]*):", re.IGNORECASE)


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
