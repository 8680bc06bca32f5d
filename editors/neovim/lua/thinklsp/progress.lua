--- The turns that run, as the server's work-done progress tells of them.
local M = {}

---@class thinklsp.Work
---@field client_id integer
---@field token string|integer
---@field message string phase, elapsed time and tokens, in the server's words
---@field beats integer how many reports have come

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

--- Takes one value of a work-done token.
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

--- A client is gone, and its turns with it.
---@param client_id integer
function M.forget(client_id)
  running = vim.tbl_filter(function(work)
    return work.client_id ~= client_id
  end, running)
end

--- The newest turn that runs.
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

--- What a turn of this client is doing; nil while no progress of it is known.
---@param client_id integer
---@param turn_id string
---@return string?
function M.of_turn(client_id, turn_id)
  for _, work in ipairs(running) do
    -- The server's token holds the id of the turn.
    if work.client_id == client_id and tostring(work.token):find(turn_id, 1, true) then
      return drawn(work)
    end
  end
end

return M
