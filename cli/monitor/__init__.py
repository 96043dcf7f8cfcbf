"""``vinoqueue status`` and ``health``."""
