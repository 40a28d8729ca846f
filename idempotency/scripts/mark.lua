-- A mark belongs to the call that set it, and none is set on an event that somebody holds.
-- KEYS of each event: mark, claim · ARGV[1] life of a mark in ms, ARGV[2] '1' to be told results · ARGV of each: token
-- One word for each event: M marked, P<ms> in progress for so long, D done (Db, Ds: with the next result)
local life, telling = ARGV[1], ARGV[2] == '1'
local words, answer = {}, {''}
for i = 1, #KEYS / 2 do
  local mark, claim, token = KEYS[2 * i - 1], KEYS[2 * i], ARGV[2 + i]
  local left = redis.call('PTTL', claim)
  if left == -2 and redis.call('SET', mark, token, 'NX', 'PX', life) then
    words[i] = 'M'
  else
    local stored = redis.call('GET', mark)
    if stored == token then
      words[i] = 'M'
    elseif stored then
      local kind, result
      if telling then
        kind, result = string.match(stored, '^[^\n]*\n([bs])\n[^\n]*\n(.*)$')
      end
      words[i] = 'D' .. (kind or '')
      if kind then
        answer[#answer + 1] = result
      end
    else
      words[i] = 'P' .. string.format('%d', math.max(left, 1))
    end
  end
end
answer[1] = table.concat(words, ' ')
return answer[2] and answer or redis.status_reply(answer[1])
