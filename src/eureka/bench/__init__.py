"""Ratios against named baselines, measured in one run on the reader's own machine."""
