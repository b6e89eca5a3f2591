"""Published and simple policies that ours are measured against."""
