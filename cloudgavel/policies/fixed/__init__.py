"""Policies over shares of time: a cluster that is paid for, or a fleet within a spend rate.

| symbol | here | meaning |
|---|---|---|
| X_jr | ``Allocation.shares`` | share of time of job j in pool r |
| T_jr | ``Cluster.rate`` | steps/s of the whole gang |
| k_r | ``Cluster.gang`` | accelerators one job takes in pool r |
| N_r | ``Cluster.limits`` | accelerators of a type |
| n_j | ``Cluster.equal_rate`` | steps/s per accelerator on the cluster's type mix |
| w_j, S_j | ``Cluster.weight``, ``Cluster.steps`` | weight, steps left |
| thr_j(X) | ``Shares.throughput`` | effective steps/s: the sum of T_jr X_jr |
"""
