"""Log lines: one form for every process, on standard error. They carry no prompts and no answers."""

import logging
from collections.abc import Sequence

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


_MOST_NAMES = 10


def summary(names: Sequence[str]) -> tuple[int, str]:
    """The number of ``names``, and a text with the first of them."""
    return len(names), ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


def configure(level: str) -> None:
    """Print log lines of ``level`` ('debug' to 'error') and above."""
    logging.basicConfig(level=level.upper(), format=FORMAT, force=True)
    for chatty in ("arq", "asyncio", "uvicorn", "httpx", "httpcore", "urllib3", "filelock"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.root.level))
