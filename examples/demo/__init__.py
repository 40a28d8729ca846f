"""The whole road on embedded servers, with faults on the way."""
