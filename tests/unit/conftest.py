"""Property tests run on busy machines: how long one example takes says nothing about the product."""

from hypothesis import HealthCheck, settings

settings.register_profile("busy_machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy_machine")
