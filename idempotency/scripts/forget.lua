-- Of a forgotten event nothing is left: it is as new. Where a result is asked for, no completion with another one is lost.
-- KEYS of each event: mark, claim, attempts · ARGV of each: empty, or the kind and the result that its completion has to have
-- One word for each event: K there was something, and it is gone, L there was nothing, or what was not asked for
local words = {}
for i = 1, #KEYS / 3 do
  local mark, only, meant = KEYS[3 * i - 2], ARGV[i], true
  if only ~= '' then
    local kind, result = string.match(redis.call('GET', mark) or '', '^[^\n]*\n([bs])\n[^\n]*\n(.*)$')
    meant = kind and kind .. '\n' .. result == only
  end
  words[i] = meant and redis.call('DEL', mark, KEYS[3 * i - 1], KEYS[3 * i]) > 0 and 'K' or 'L'
end
return redis.status_reply(table.concat(words, ' '))
