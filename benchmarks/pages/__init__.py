"""The pages of the site, those that are made among them: cards, symptoms, commands. ``python -m benchmarks.pages``"""
