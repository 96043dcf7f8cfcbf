"""Generated parts of files: the lines between two markers."""


def replaced(text: str, begin: str, end: str, content: str) -> str:
    """Return ``text`` with ``content`` between the lines ``begin`` and ``end``.

    Raises :class:`ValueError` if a marker is missing.
    """
    head, found_begin, rest = text.partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found_begin or not found_end:
        raise ValueError(f"the file needs the lines {begin!r} and {end!r}")
    return f"{head}{begin}{content}{end}{tail}"
