"""The token ledger: pure functions and values; no server, no engine, no device."""
