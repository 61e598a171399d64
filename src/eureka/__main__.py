"""``python -m eureka`` is the command line."""

from eureka.cli.start import main

main()
