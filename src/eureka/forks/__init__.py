"""Copies of the model and loop that a user hands over, and short trials on them."""
