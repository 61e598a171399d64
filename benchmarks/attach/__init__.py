"""Training scripts as people write them, and faults planted in them."""
