"""From a random model to an agent that finds the gold: the whole ring on two CPU cores, in minutes."""
