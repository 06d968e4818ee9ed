"""What `scripts/golden.py` writes down, a file for each kind of thing."""
