"""Cost-aware autoscaling scheduler for machine-learning training jobs.

The rooms, from the entrance down; imports go down only:

    cli            commands, flags, environment
    views          documents -> text
    simulator      the same loop with a virtual clock
    runtime        observe -> decide -> act -> record
    providers      rented machines; store: events and ledger; agent, training: on the machine
    ---------------------------- purity ends above this line
    mechanism      ClusterState -> RoundPlan
    policies       AllocationProblem -> Allocation
    pricing        offers, bills, interruptions, markets
    estimation     throughputs that were not measured
    jobs           what was asked and how far it is
    documents      what is shown: the JSON is these
    objects        object stores; messages: the wire types
    errors, units, clock

``decide(state) -> plan`` is pure. A plan, a simulation, a rehearsal and a cloud run are the same
decision code and the same loop with another clock and another cloud.
"""

__version__ = "0.1.0"
