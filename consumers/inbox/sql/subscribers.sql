-- Of what waits no more is counted than anybody reads: a consumer that nobody runs has gathered rows without an end.
select consumer, array_to_json(patterns)::text, to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       (select count(*)
          from (select from inbox_deliveries as delivery
                 where delivery.consumer = subscriber.consumer and state = 'pending' and ordering_key is null
                   and not suspect
                 limit %(most)s) as ready)
       + (select count(*)
            from (select from inbox_deliveries as delivery
                   where delivery.consumer = subscriber.consumer and ordering_key > ''
                     and state in ('pending', 'processing')
                   limit %(most)s) as keyed)
  from inbox_subscribers as subscriber
 order by consumer
