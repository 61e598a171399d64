"""Starts: rescale a freshly made model before it is trained, from what one batch shows."""
