"""An environment in twelve lines, and how an agent learns in it."""
