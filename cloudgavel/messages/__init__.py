"""The wire between controller and agents: two JSON objects per instance in the run's store.

    instances/<id>/orders.json   controller -> agent   what should be true, numbered
    instances/<id>/report.json   agent -> controller   what is true

Orders are the *whole* desired state, so a lost or repeated delivery does no harm: the agent acts on
the highest ``sequence`` it has seen.
"""
