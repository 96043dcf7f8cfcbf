"""Ground: what every room of the API may use, and what uses none of them."""
