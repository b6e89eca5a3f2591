"""Rounds: ClusterState -> RoundPlan; pure, total, deterministic."""
