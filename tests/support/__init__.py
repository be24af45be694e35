"""What several test folders need: an independent oracle, and an operator run over a table."""
