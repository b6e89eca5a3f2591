"""Amazon EC2: spot and on-demand instances behind the provider's protocol.

boto3 is imported when a client is made, never by importing these modules.
"""
