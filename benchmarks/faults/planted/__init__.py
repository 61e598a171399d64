"""The plans of the suite, by what is wrong."""
