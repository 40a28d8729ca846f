"""What operators see of an inbox, and do to what is in it. Works beside running consumers, and needs none."""
