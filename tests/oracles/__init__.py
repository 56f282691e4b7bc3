"""Independent reference implementations: what the library must compute, written down another way."""
