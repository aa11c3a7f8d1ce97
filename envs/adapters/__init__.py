"""Environments of other gyms, each behind an extra of its own."""
