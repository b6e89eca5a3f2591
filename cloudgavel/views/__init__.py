"""Documents -> text."""
