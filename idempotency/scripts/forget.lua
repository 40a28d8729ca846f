-- Of a forgotten event nothing is left: it is as new.
-- KEYS of each event: mark, claim, attempts
-- One word for each event: K there was something, L there was nothing
local words = {}
for i = 1, #KEYS / 3 do
  words[i] = redis.call('DEL', KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]) > 0 and 'K' or 'L'
end
return redis.status_reply(table.concat(words, ' '))
