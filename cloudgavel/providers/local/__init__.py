"""Rehearsal: the simulated cloud decides when everything happens, real processes do the work.

``world`` is what a controller talks to, ``targets`` says what the processes have to reach,
``machines`` and ``processes`` start, follow and end them. No money is spent.
"""
