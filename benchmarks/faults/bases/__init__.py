"""Healthy runs, by kind of model; the plans put faults into them."""
