"""What holds for all tests."""

from hypothesis import HealthCheck, settings

# Machines differ in speed, and no test asserts times.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")
