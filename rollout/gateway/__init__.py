"""The gateway: what agents talk to. It speaks their dialects outside and tokens inside, and records every call."""
