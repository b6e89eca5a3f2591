"""What was asked, how fast it goes, how far it is."""
