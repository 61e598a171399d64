"""How time and memory grow, as one page: ``python -m benchmarks.growth [--page docs/performance.md] [--quick] [--json]``."""
