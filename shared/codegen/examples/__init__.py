"""One realistic example of every message, written by hand. The golden files are made from these."""
