"""Clips are cut from films: long work with stages and progress, each done once, whoever is killed in between."""
