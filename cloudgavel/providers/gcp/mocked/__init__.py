"""A fake Google Cloud for the dry run and for tests: Compute Engine, Cloud TPU, Cloud Storage,
billing and metadata over HTTP on this machine, in as much as cloudgavel uses of them.

``cloud.FakeGcp`` holds the state and moves with the clock that it is given; ``server.serve`` puts
it on a port of 127.0.0.1. It enforces what the real cloud enforces and mocks usually do not:
capacity and quotas by zone, request ids, names that are taken, generations.
"""
