-- Nothing is stored for it from here on; what was stays.
delete from inbox_subscribers where consumer = %(consumer)s returning consumer
