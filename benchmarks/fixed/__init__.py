"""Problems on a fixed cluster; ``python -m benchmarks.table`` runs them all."""
