"""The program on every rented machine: runs jobs, saves, reports."""
