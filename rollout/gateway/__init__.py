"""The gateway: what agents talk to. It speaks OpenAI's dialect outside and tokens inside, and records every call."""
