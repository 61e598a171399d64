"""Where the bytes of a data set may come from, one file for each kind of place."""
