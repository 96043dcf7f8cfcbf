"""Writes the parts of the documentation that come from the code, and checks the links of its site."""
