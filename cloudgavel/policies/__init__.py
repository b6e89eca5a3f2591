"""Policies are optimisation problems over measured throughputs: AllocationProblem -> Allocation."""
