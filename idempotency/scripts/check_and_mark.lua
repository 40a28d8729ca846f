-- A mark belongs to the call that set it: that call is told 0 however often it asks, every other one 1.
-- KEYS[1] the mark; ARGV[1] the call's own token; ARGV[2] how long the mark lives, in milliseconds
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 0
end
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return 0
end
return 1
