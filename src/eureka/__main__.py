"""``python -m eureka`` is the command line."""

from eureka.cli.main import main

main()
