"""The doctor: why a model does not learn, by experiments on copies of it."""
