"""Every model class of transformers, made small from its own config, patched and compared with itself."""
