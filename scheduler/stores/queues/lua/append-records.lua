-- Keeps each task's newest record and puts it on the stream to the database. A late record changes nothing and is
-- dropped: one of an older attempt, or of an earlier state of the same attempt. After a final status every record is
-- late but the COMPLETE of the last attempt. mayReplace in tasks/state.ts and the store have the same rule. The record
-- of an attempt's end is written in the turn of its fenced call, before that call's answer is known. So this script
-- refuses it when a newer attempt has a lease. A final record also drops the lease of its attempt and takes its task
-- out of the local queue: no attempt is left to adopt.
-- KEYS: 1 records (stream) 2 leases by machine (as in write-leases.lua), then for each record: task record (string),
-- lease (string), local queue of its queue (hash)
-- ARGV: 1 most entries of the stream, then for each record: attempt, rank, record (JSON that starts
-- {"attempt":A,"rank":R,), seconds the key lives, 1 when it says how an attempt ended, its task where it may be in a
-- local queue, else empty
-- Answer: the stream's length, then for each record that was refused its place (from 0) and -1 (by the record that is
-- known) or -2 (by the lease of a newer attempt) Attempt and machine of a lease; nil where none stands.
local function leaseOf(leaseKey)
  local attempt, machine = string.match(redis.call('GETRANGE', leaseKey, 0, 511), '^{"lock":"[^"]*","attempt":(%d+),"containerId":"[^"]*","machineId":"([^"]*)"')
  return tonumber(attempt), machine
end
local function dropLease(leaseKey, machine)
  redis.call('DEL', leaseKey)
  if machine then redis.call('ZREM', KEYS[2], machine .. ':' .. string.match(leaseKey, '[^:]+$')) end
end
local function refusal(taskKey, leaseKey, laneKey, attempt, rank, record, seconds, isEnd, task)
  local heldAttempt, heldRank = string.match(redis.call('GETRANGE', taskKey, 0, 63), '^{"attempt":(%d+),"rank":(%d+)')
  heldAttempt = tonumber(heldAttempt or -1)
  heldRank = tonumber(heldRank or -1)
  if heldRank >= 3 then
    if task ~= '' then redis.call('HDEL', laneKey, task) end
    -- The same record again changes nothing and is no error. The
    -- lease may have been written again after a loss of data.
    if attempt == heldAttempt and rank == heldRank then
      local leased, machine = leaseOf(leaseKey)
      if leased and leased <= attempt then dropLease(leaseKey, machine) end
      return nil
    end
    if not (heldRank == 3 and rank == 4 and attempt >= heldAttempt) then return -1 end
  elseif attempt < heldAttempt or (attempt == heldAttempt and rank < heldRank) then
    return -1
  end
  if rank >= 3 then
    local leased, machine = leaseOf(leaseKey)
    if isEnd == '1' and leased and leased > attempt then return -2 end
    dropLease(leaseKey, machine)
    if task ~= '' then redis.call('HDEL', laneKey, task) end
  end
  redis.call('SET', taskKey, record, 'EX', seconds)
  redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'record', record)
  return nil
end
local answer = { 0 }
local at = 2
for place = 0, (#KEYS - 2) / 3 - 1 do
  local key = 3 * place + 3
  local attempt, rank = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  local why = refusal(KEYS[key], KEYS[key + 1], KEYS[key + 2], attempt, rank, ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5])
  if why then
    answer[#answer + 1] = place
    answer[#answer + 1] = why
  end
  at = at + 6
end
answer[1] = redis.call('XLEN', KEYS[1])
return answer
