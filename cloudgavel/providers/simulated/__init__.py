"""A documented fake cloud, and the arithmetic of what agents and jobs on it do.

``cloud`` rents, lists, interrupts and ends machines in virtual time; ``attempt`` is one start of
one job as a state machine; ``agents`` carries out orders on the machines; ``world`` moves both.
Nothing here reads a clock, throws dice or touches a disk, and all of it can be saved and resumed:
the cloud outlives its controller.
"""
