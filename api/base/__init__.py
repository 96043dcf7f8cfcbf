"""What every other package of the API may use. It imports none of them."""
