"""Diagnose an unchanged training script: run it up to a step, take what the diagnosis needs, and name the change."""
