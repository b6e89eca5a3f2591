"""Throughputs that were not measured: estimates with an uncertainty, from whatever was. Pure."""
