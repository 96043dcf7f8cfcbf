"""The version of this installation."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("vinoqueue")
except PackageNotFoundError:
    VERSION = "0.0.0+source"
"""As the package metadata has it; a checkout that was not installed has none."""
