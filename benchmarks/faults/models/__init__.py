"""The models of the suite, written in the ways that people write them."""
