"""Spot under a deadline: when to rent spot, where, when to wait, when to pay for on-demand."""
