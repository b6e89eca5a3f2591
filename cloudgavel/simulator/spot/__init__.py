"""Replay of spot availability traces under a policy, with exact accounting."""
