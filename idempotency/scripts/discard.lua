-- A mark or a lock is taken away by the token that made it alone.
-- KEYS of each: mark or lock · ARGV of each: token
-- One word for each: K gone, L another's
local words = {}
for i, key in ipairs(KEYS) do
  local stored = redis.call('GET', key)
  if stored == ARGV[i] then
    redis.call('DEL', key)
    words[i] = 'K'
  else
    words[i] = stored and 'L' or 'K'
  end
end
return redis.status_reply(table.concat(words, ' '))
