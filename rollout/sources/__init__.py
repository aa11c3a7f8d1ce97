"""Where batches come from: live rollouts, demonstrations."""
