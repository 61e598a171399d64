"""The report of a study while its runs go on: what is read, the page, and the server that shows it."""
