"""The version of this installation."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("vinoqueue")
except PackageNotFoundError:
    VERSION = "0.0.0+source"
"""The version in the package metadata; a checkout that is not installed has none."""
