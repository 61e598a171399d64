"""What the models learn: each file draws batches, and scores a model on held-out samples of the right question."""
