"""The parts of the benchmark, each a module with a TITLE and `measure`."""
