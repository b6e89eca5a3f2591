"""The memory of a run: an append-only log of events, what follows from them, and the ledger."""
