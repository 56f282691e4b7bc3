"""What settings call functions; here, as settings are read before anything slow is imported."""

FUNCTION_NAMES = ("functions", "sinusoids", "images", "groups")
"""Those of `sureshot.meta.functions.by_name`."""
