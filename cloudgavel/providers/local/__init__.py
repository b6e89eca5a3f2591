"""Rehearsal: the simulated cloud decides when everything happens, real processes do the work.

``world`` is what a controller talks to. ``targets`` says what the processes have to reach,
``rehearsing`` has them do it and ``surprises`` says where they did not. ``park``, ``machines`` and
``processes`` start, follow and end them; ``state_file`` keeps it all. No money is spent.
"""
