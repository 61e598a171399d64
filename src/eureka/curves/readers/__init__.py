"""Logs of anyone: CSV, JSON Lines, Hugging Face, TensorBoard, Lightning, W&B and our own run folders."""
