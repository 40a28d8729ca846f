"""The outbox: emit an event with the change that it announces; the relay carries it on."""
