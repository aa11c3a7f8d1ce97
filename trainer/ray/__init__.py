"""Ray: actors that hold the ranks, their placement, and the driver-side `RayPolicyTrainer` (in `trainer.py`)."""
