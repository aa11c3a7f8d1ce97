"""Environments that are not trusted to behave, each in a process of its own that can be killed."""
