--- The changes of the newest edit, so that the user can take single ones back.
local change_kinds = require('thinklsp.change_kinds')
local messages = require('thinklsp.messages')
local review_float = require('thinklsp.review_float')

local M = {}

---@class thinklsp.NewestEdit
---@field label string
---@field client_id integer
---@field turn_id? string the turn, which is known after its end
---@field changes thinklsp.Change[]
---@field latest thinklsp.Change[] those of the latest edit that was applied

---@type thinklsp.NewestEdit?
local newest

--- Remember the places of an edit of a turn, directly before the edit is applied.
---@param params lsp.ApplyWorkspaceEditParams
---@param client vim.lsp.Client
function M.remember(params, client)
  local label = params.label or ''
  if not vim.startswith(label, 'thinklsp: ') or vim.startswith(label, 'thinklsp: undo: ') then
    return
  end
  local latest = change_kinds.list(params.edit, client.offset_encoding)
  -- `:Thinklsp apply` completes the edit of a turn that has already ended.
  local completed = newest and newest.label == label and newest.turn_id and newest or nil
  local others = vim.tbl_filter(function(change)
    return not vim.iter(latest):any(function(other)
      return other.uri == change.uri
    end)
  end, completed and completed.changes or {})
  newest = {
    label = label,
    client_id = client.id,
    turn_id = completed and completed.turn_id,
    changes = vim.list_extend(others, latest),
    latest = latest,
  }
end

--- Assign the newest edit to the turn that has ended.
---@param result { turnId: string, edits: table? }
function M.claim(result)
  if newest and result.edits and result.edits ~= vim.NIL and result.edits.applied ~= 'none' then
    newest.turn_id, newest.changes = result.turnId, newest.latest
  end
end

---@param turn { client_id: integer, turn_id: string }
---@param hunks thinklsp.Hunk[]
local function report(turn, hunks)
  local files, undone = {}, 0
  for _, hunk in ipairs(hunks) do
    if hunk.kept ~= nil then
      files[hunk.uri] = files[hunk.uri] or { uri = hunk.uri, kept = {}, undone = {} }
      table.insert(hunk.kept and files[hunk.uri].kept or files[hunk.uri].undone, hunk.number)
      undone = undone + (hunk.kept and 0 or 1)
    end
  end
  local client = vim.lsp.get_client_by_id(turn.client_id)
  if client and next(files) then
    local params = { turnId = turn.turn_id, files = vim.tbl_values(files) }
    require('thinklsp.client').notify(client, 'thinklsp/editor/kept', params)
  end
  if undone > 0 then
    local them = undone == 1 and 'change undone; :Thinklsp apply offers it' or 'changes undone; :Thinklsp apply offers them'
    messages.say(('%d %s again'):format(undone, them))
  end
end

--- Take back the changes that the user has chosen, the last ones of each file first.
---@param turn { client_id: integer, turn_id: string }
---@param hunks thinklsp.Hunk[]
---@param by_hunk table<thinklsp.Hunk, thinklsp.Change>
local function settle(turn, hunks, by_hunk)
  for index = #hunks, 1, -1 do
    local hunk = hunks[index]
    if hunk.kept == false then
      local is_undone, problem = pcall(by_hunk[hunk].undo)
      if not is_undone then
        hunk.kept = nil
        messages.warn(('%s was not changed back: %s'):format(review_float.path_of(hunk.uri), messages.cause_of(problem)))
      end
    end
  end
  report(turn, hunks)
end

--- Show the changes of the newest edit. `n` takes one back.
function M.show()
  local turn, hunks, by_hunk = newest, {}, {}
  for _, change in ipairs(turn and turn.turn_id and turn.changes or {}) do
    local title, diff = change.look()
    if title then
      local hunk = { uri = change.uri, number = change.number, title = title, diff = diff }
      by_hunk[hunk] = change
      table.insert(hunks, hunk)
    end
  end
  if turn and #hunks > 0 then
    review_float.open(hunks, { turn.label }, review_float.AFTER, function()
      settle(turn, hunks, by_hunk)
    end)
  else
    messages.say('there is no change to take back')
  end
end

return M
