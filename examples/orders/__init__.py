"""Orders come in over HTTP, an invoice goes out for each, whoever is killed in between."""
