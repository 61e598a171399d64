"""The training loop and what belongs to it: config, optimiser, checkpoints, logs, and the rule of a leap."""
