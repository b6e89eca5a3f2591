"""How good estimated throughputs are, on entries held out of a published table."""
