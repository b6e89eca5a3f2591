"""Rounds on a cluster that is paid for already: a snapshot in, leases of accelerators out. Pure."""
