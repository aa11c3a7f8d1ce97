"""The token ledger: pure functions and values; no server, no engine, no device.

A `Forest` records a session's model calls; a `Trace` is the sealed record of an episode; `emit` turns it into training
rows; `audit` checks them. `families` turn messages into ids and back.
"""

from agar.ledger.config import AuditMode, RecordPolicy

__all__ = ["AuditMode", "RecordPolicy"]
