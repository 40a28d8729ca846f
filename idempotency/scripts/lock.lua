-- One token holds a lock at a time.
-- KEYS of each: lock · ARGV[1] lease in ms · ARGV of each: token
-- One word for each: C locked, P<ms> another's for so long
local words = {}
for i, key in ipairs(KEYS) do
  local token = ARGV[1 + i]
  if redis.call('SET', key, token, 'NX', 'PX', ARGV[1]) then
    words[i] = 'C'
  elseif redis.call('GET', key) == token then
    redis.call('PEXPIRE', key, ARGV[1])
    words[i] = 'C'
  else
    words[i] = 'P' .. string.format('%d', math.max(redis.call('PTTL', key), 1))
  end
end
return redis.status_reply(table.concat(words, ' '))
