"""Vinoqueue's command line. The only package that imports all others."""
