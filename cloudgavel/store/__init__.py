"""The run's memory: events, their fold, and the ledger."""
