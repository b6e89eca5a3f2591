"""The runtime's loop with a virtual clock and the simulated cloud."""
