"""The fleet view: the state of the whole service as JSON, and as a stream of events."""
