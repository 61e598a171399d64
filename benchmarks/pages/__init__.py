"""The pages of the site that are made and not written: cards, symptoms, commands, the public names. ``python -m benchmarks.pages``"""
