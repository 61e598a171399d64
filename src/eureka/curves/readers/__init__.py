"""Logs of anyone: CSV, JSON Lines, Hugging Face, TensorBoard, Lightning, W&B and our own run folders."""

from __future__ import annotations

from eureka.curves.readers.curve import Curve, read_curve

__all__ = ["Curve", "read_curve"]
