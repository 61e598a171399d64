"""One check a file: each measures or tries something, and names causes with the evidence."""
