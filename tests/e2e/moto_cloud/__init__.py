"""AWS on this machine: the moto server behind the project's own layer, and machines as processes.

``server`` puts ``providers.aws.mocked.layer`` round the moto server (inside a process the same
layer is a hook: ``providers.aws.mocked.inside``). ``machines`` starts a real agent for each
instance that is launched and kills it when the instance ends.
"""
