"""Orders come in; an invoice is rendered and mailed for each, and a client may wait for it."""
