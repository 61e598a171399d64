"""Where real data comes from: data sets, sources, cache, decoding."""
