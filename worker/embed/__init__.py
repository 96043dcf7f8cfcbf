"""Embedding models: what their files say, their graph, and the engine that computes vectors."""
