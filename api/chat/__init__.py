"""A chat from its request to its last byte: admission, submission, the open streams, and what is written."""
