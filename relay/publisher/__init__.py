"""One pass of the road: claim, publish, settle."""
