"""Grammars of constrained output: planned for the engine, compiled on trial, and measured in the grammar process."""
