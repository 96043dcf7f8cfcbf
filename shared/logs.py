"""Log lines: one form for every process, on standard error. They carry no prompts and no answers."""

import logging

FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"


def configure(level: str) -> None:
    """Print log lines of ``level`` ('debug' to 'error') and above."""
    logging.basicConfig(level=level.upper(), format=FORMAT, force=True)
    for chatty in ("arq", "asyncio", "uvicorn", "httpx", "httpcore", "urllib3", "filelock"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, logging.root.level))
