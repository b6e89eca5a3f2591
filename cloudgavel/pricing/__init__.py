"""Offers, bills, interruption risk and market traces."""
