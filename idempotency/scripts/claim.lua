-- One token holds an event at a time, and none an event that was completed; a token is counted once.
-- KEYS of each event: mark, claim, attempts · ARGV[1] lease, ARGV[2] life of the count, in ms · ARGV of each: token, fingerprint
-- One word for each event: C<attempt> claimed, P<ms> in progress for so long, D done (Db, Ds: with the next result), F conflict
local lease, life = ARGV[1], ARGV[2]
local words, answer = {}, {''}

local function conflict(given, stored)
  return given ~= '' and stored and stored ~= '' and given ~= stored
end

for i = 1, #KEYS / 3 do
  local mark, claim, attempts = KEYS[3 * i - 2], KEYS[3 * i - 1], KEYS[3 * i]
  local token, fingerprint = ARGV[2 * i + 1], ARGV[2 * i + 2]
  local stored = redis.call('GET', mark)
  local held = not stored and redis.call('GET', claim)
  if stored then
    local kind, other, result = string.match(stored, '^[^\n]*\n([bs]?)\n([^\n]*)\n(.*)$')
    if conflict(fingerprint, other) then
      words[i] = 'F'
    else
      words[i] = 'D' .. (kind or '')
      if kind and kind ~= '' then
        answer[#answer + 1] = result
      end
    end
  elseif held then
    local owner, attempt, other = string.match(held, '^([^\n]*)\n(%d+)\n([^\n]*)')
    if owner == token then
      redis.call('PEXPIRE', claim, lease)
      words[i] = 'C' .. attempt
    elseif conflict(fingerprint, other) then
      words[i] = 'F'
    else
      words[i] = 'P' .. string.format('%d', math.max(redis.call('PTTL', claim), 1))
    end
  else
    local count, last = string.match(redis.call('GET', attempts) or '0 ', '^(%d+) (.*)$')
    if last ~= token then
      count = string.format('%d', count + 1)
    end
    redis.call('SET', claim, token .. '\n' .. count .. '\n' .. fingerprint, 'PX', lease)
    redis.call('SET', attempts, count .. ' ' .. token, 'PX', life)
    words[i] = 'C' .. count
  end
end
answer[1] = table.concat(words, ' ')
return answer[2] and answer or redis.status_reply(answer[1])
