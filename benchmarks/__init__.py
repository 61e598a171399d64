"""What only developers measure: ``python -m benchmarks.NAME``. What users measure is `eureka bench`."""
