-- What became due by an operator's hand is taken at once, also by a relay that sleeps.
select outbox_wake()
