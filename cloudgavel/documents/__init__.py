"""What is shown and written: versioned, pure; the JSON is these."""
