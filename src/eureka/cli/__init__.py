"""The command line: one file for each verb. Nobody imports this package."""
