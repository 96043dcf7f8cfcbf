"""Log configuration: one format for all processes, on standard error. Prompts and responses are never logged."""

import logging
from collections.abc import Sequence

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


_MOST_NAMES = 10


def summary(names: Sequence[str]) -> tuple[int, str]:
    """Return the number of ``names``, and the first of them joined by commas."""
    return len(names), ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")


def configure(level: str) -> None:
    """Log messages of ``level`` ('debug' to 'error') and above."""
    logging.basicConfig(level=level.upper(), format=FORMAT, force=True)
    for chatty in ("arq", "asyncio", "uvicorn", "httpx", "httpcore", "urllib3", "filelock"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.root.level))
