"""Rules and their codes, the silencing of findings, and the text in which findings are written."""
