"""From an answer's events to a dialect's bytes: read each choice, then write it as a stream or as one body."""
