"""Responses: the events of a request are parsed per choice and encoded in a dialect, as a stream or as one document."""
