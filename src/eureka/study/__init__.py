"""Many runs: how they are planned, carried out, grouped and compared."""
