-- Only the token that holds prolongs, and what ran out is not revived.
-- KEYS of each: claim or lock · ARGV of each: token, lease in ms
-- One word for each: K kept, L lost
local words = {}
for i, key in ipairs(KEYS) do
  local held = redis.call('GET', key)
  if held and string.match(held, '^[^\n]*') == ARGV[2 * i - 1] then
    redis.call('PEXPIRE', key, ARGV[2 * i])
    words[i] = 'K'
  else
    words[i] = 'L'
  end
end
return redis.status_reply(table.concat(words, ' '))
