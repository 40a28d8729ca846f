-- A mark is never replaced, nor set under somebody else who holds; a claim that is merely gone does not keep it from being set.
-- KEYS of each event: mark, claim, attempts · ARGV[1] life of a mark in ms · ARGV of each: token, what the mark says
-- One word for each event: K kept, L lost
local words = {}
for i = 1, #KEYS / 3 do
  local mark, claim, attempts = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local token, value = ARGV[2 * i], ARGV[2 * i + 1]
  local stored = redis.call('GET', mark)
  if stored then
    words[i] = string.match(stored, '^[^\n]*') == token and 'K' or 'L'
  else
    local held = redis.call('GET', claim)
    local owner = held and string.match(held, '^[^\n]*') or ''
    if owner == token or owner == '' then
      redis.call('SET', mark, value, 'PX', ARGV[1])
      redis.call('DEL', claim, attempts)
      words[i] = 'K'
    else
      words[i] = 'L'
    end
  end
end
return redis.status_reply(table.concat(words, ' '))
