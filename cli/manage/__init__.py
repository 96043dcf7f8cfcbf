"""``vinoqueue key`` and ``model``."""
