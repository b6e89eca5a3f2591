"""Object stores and checkpoint manifests."""
