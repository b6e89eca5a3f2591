"""The program on every machine: pulls orders, runs jobs, saves, reports; alike under every cloud.

Light on purpose: standard library, ``objects`` and ``messages`` only.
"""
