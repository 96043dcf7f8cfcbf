"""Folders of the repository."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "models"
"""Tiny models with every kind of vocabulary, and vision models."""
