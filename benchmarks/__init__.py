"""What the relay reaches, beside the most that this machine allows and beside others: `make bench`."""
