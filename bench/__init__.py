"""What ``make bench`` measures, and the real processes that it and the tests measure with."""
