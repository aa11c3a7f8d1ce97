"""Publication: from the ranks' weights to a `WeightUpdate` that a receiver can take and prove."""
