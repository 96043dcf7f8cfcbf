"""The ``vinoqueue`` command. The only package that imports all others."""
