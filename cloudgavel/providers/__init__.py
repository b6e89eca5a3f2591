"""Rented machines behind one protocol."""
