"""The headline comparisons of the 2020 paper and the original scheduler's figures, on this code."""
