"""Errors of image files."""


class ImageError(ValueError):
    """An image can't be decoded. The message completes a sentence that starts with "The image"."""
