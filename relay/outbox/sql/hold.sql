-- What this transaction publishes, it can mark: whoever builds an index or adds a trigger waits for its end, or it for
-- theirs, before it has claimed anything. To lock rows alone takes a weaker lock of the table than to mark them.
update outbox_events set message_id = message_id where false
