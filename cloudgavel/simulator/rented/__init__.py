"""Policies compared on rented machines: the real loop and decision, in many simulated markets."""
