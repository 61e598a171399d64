"""Swap the attention of a model, reversibly: `eureka.patch` is `eureka.patching.patch.patch`."""
