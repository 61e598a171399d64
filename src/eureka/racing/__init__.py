"""Try remedies on copies of a user's own run, and say which of them works."""
