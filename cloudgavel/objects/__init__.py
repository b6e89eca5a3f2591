"""The run's object store and the checkpoints in it.

``store`` is the protocol, ``files`` keeps it on a local disk, ``open`` picks one by URL and
``manifest`` says which checkpoints are whole. No clock, no dice: bytes in, bytes out.
"""
