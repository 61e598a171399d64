"""Swap the attention of a model, reversibly, by `eureka.patch`; `unpatch`, for copies of a patched model, is in `patch.py`."""
