--- The running turns, according to the work-done progress of the server.
local M = {}

---@class thinklsp.Work
---@field client_id integer
---@field token string|integer
---@field message string the server's text about phase, elapsed time and tokens
---@field beats integer the number of reports so far

local FRAMES = { '⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏' }

---@type thinklsp.Work[] oldest first
local running = {}

---@param work thinklsp.Work
---@return string
local function drawn(work)
  return ('%s %s'):format(FRAMES[work.beats % #FRAMES + 1], work.message)
end

---@param client_id integer
---@param token string|integer
---@return integer? index, thinklsp.Work? work
local function find(client_id, token)
  for index, work in ipairs(running) do
    if work.client_id == client_id and work.token == token then
      return index, work
    end
  end
end

--- Process one progress value of a work-done token.
---@param client_id integer
---@param token string|integer
---@param value { kind: string, message: string? }
function M.take(client_id, token, value)
  local index, work = find(client_id, token)
  if value.kind == 'begin' and not work then
    table.insert(running, { client_id = client_id, token = token, message = value.message or 'starting', beats = 0 })
  elseif value.kind == 'report' and work then
    work.message, work.beats = value.message or work.message, work.beats + 1
  elseif value.kind == 'end' and index then
    table.remove(running, index)
  else
    return
  end
  vim.cmd.redrawstatus({ bang = true })
end

--- Remove the turns of a client that has exited.
---@param client_id integer
function M.forget(client_id)
  running = vim.tbl_filter(function(work)
    return work.client_id ~= client_id
  end, running)
end

--- Return the newest running turn.
---@return thinklsp.Work?
function M.newest()
  return running[#running]
end

---@return string
function M.status()
  local newest = M.newest()
  if not newest then
    return ''
  end
  local others = #running > 1 and (' (+%d)'):format(#running - 1) or ''
  return drawn(newest) .. others
end

--- Return the status of a turn, or nil if it has no progress yet.
---@param client_id integer
---@param turn_id string
---@return string?
function M.of_turn(client_id, turn_id)
  for _, work in ipairs(running) do
    -- The server's token contains the id of the turn.
    if work.client_id == client_id and tostring(work.token):find(turn_id, 1, true) then
      return drawn(work)
    end
  end
end

return M
