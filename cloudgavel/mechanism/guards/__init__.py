"""What holds whatever a policy says: the budget, the deadlines, and no needless moves."""
