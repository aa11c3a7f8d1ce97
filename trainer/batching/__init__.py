"""Batching as pure numpy: samples become rows, rows are packed into micro-batches, micro-batches go to ranks."""
