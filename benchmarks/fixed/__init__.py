"""Whole calls of the fixed-cluster policies: ``python benchmarks/fixed/run.py [NAME ...]``."""
