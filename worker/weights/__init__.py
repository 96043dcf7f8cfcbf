"""Weights in faster formats, and the cache of their converted forms."""
