-- A token gives back what it holds, or what it was the last to hold, once; others' claims stay.
-- KEYS of each event: claim, attempts · ARGV[1] life of the count in ms · ARGV of each: token, '1' if counted, rest in ms
-- One word for each event: K
local words = {}
for i = 1, #KEYS / 2 do
  local claim, attempts = KEYS[2 * i - 1], KEYS[2 * i]
  local token, counted, rest = ARGV[3 * i - 1], ARGV[3 * i], tonumber(ARGV[3 * i + 1])
  local held = redis.call('GET', claim)
  local count, last = string.match(redis.call('GET', attempts) or '0 ', '^(%d+) (.*)$')
  local owner, fingerprint
  if held then
    owner, fingerprint = string.match(held, '^([^\n]*)\n%d+\n([^\n]*)')
  end
  if last == token then
    count = tonumber(count) - (counted == '1' and 0 or 1)
    if count > 0 then
      redis.call('SET', attempts, string.format('%d ', count), 'PX', ARGV[1])
    else
      redis.call('DEL', attempts)
    end
  end
  if owner == token or (not held and last == token) then
    if rest > 0 then
      redis.call('SET', claim, '\n0\n' .. (fingerprint or ''), 'PX', ARGV[3 * i + 1])
    else
      redis.call('DEL', claim)
    end
  end
  words[i] = 'K'
end
return redis.status_reply(table.concat(words, ' '))
