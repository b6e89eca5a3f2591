"""Google Cloud: GPU machines of Compute Engine and slices of Cloud TPU behind one provider.

Google's clients are imported when the first call is made, never by importing these modules.
"""
