--- The review of an edit before anything is written: a float with the diff, and keys that keep or skip each change.
local buffers = require('thinklsp.buffers')
local diffs = require('thinklsp.diffs')
local messages = require('thinklsp.messages')
local review_float = require('thinklsp.review_float')

local M = {}

local MOST_LINES = 3 -- of the model's text above the changes

---@param params { label: string, edit: lsp.WorkspaceEdit, reasons: { uri: string, hunk: integer, reason: string }[] }
---@param encoding string
---@return thinklsp.Hunk[]
local function hunks_of(params, encoding)
  local found, counts, created, reasons = {}, {}, {}, {}
  for _, one in ipairs(params.reasons) do
    reasons[one.uri] = reasons[one.uri] or {}
    reasons[one.uri][one.hunk] = one.reason
  end
  local function add(uri, title, diff)
    local number = counts[uri] or 0
    counts[uri] = number + 1
    local reason = (reasons[uri] or {})[number]
    local hunk = { uri = uri, number = number, title = title, diff = diff, reason = reason }
    table.insert(found, hunk)
    return hunk
  end
  for _, change in ipairs(params.edit.documentChanges or {}) do
    if change.kind == 'create' then
      created[change.uri] = add(change.uri, 'new file', {})
    elseif change.kind == 'delete' then
      add(
        change.uri,
        'delete the file',
        buffers.look_at(change.uri, function(bufnr)
          return diffs.signed('-', table.concat(vim.api.nvim_buf_get_lines(bufnr, 0, -1, false), '\n'))
        end)
      )
    elseif change.kind == 'rename' then
      add(change.oldUri, 'rename to ' .. vim.fn.fnamemodify(vim.uri_to_fname(change.newUri), ':.'), {})
    elseif created[change.textDocument.uri] then
      local text = table.concat(vim.tbl_map(function(edit)
        return edit.newText
      end, change.edits))
      created[change.textDocument.uri].diff = diffs.signed('+', text)
    else
      buffers.look_at(change.textDocument.uri, function(bufnr)
        for _, edit in ipairs(change.edits) do
          local title = ('line %d'):format(edit.range.start.line + 1)
          add(change.textDocument.uri, title, diffs.of_edit(bufnr, edit, encoding))
        end
      end)
    end
  end
  return found
end

---@param hunks thinklsp.Hunk[]
---@return { files: { uri: string, kept: integer[] }[] }
local function answer_of(hunks)
  local files, by_uri = {}, {}
  for _, hunk in ipairs(hunks) do
    local file = by_uri[hunk.uri]
    if hunk.kept and not file then
      file = { uri = hunk.uri, kept = {} }
      by_uri[hunk.uri] = file
      table.insert(files, file)
    end
    if hunk.kept then
      table.insert(file.kept, hunk.number)
    end
  end
  return { files = files }
end

---@type table<string, fun()> for each turn that asks, what ends its question
local asking = {}

--- Return the title of the edit and the first lines of what the model says about it.
---@param params { turnId: string, label: string }
---@return string[]
local function heading_of(params)
  local text = vim.trim(require('thinklsp.stream').text_of(params.turnId))
  local lines = text == '' and {} or vim.list_slice(vim.split(text, '\n'), 1, MOST_LINES)
  return vim.list_extend({ params.label }, lines)
end

--- Ask the user which hunks of an edit to keep. The caller must run in a coroutine.
---@param client vim.lsp.Client
function M.ask(client, params)
  local running = assert(coroutine.running())
  local hunks = hunks_of(params, client.offset_encoding)
  local float, is_over
  local function finish()
    if not is_over then
      is_over, asking[params.turnId] = true, nil
      coroutine.resume(running)
    end
  end
  local function begin()
    if not is_over then
      float = review_float.open(hunks, heading_of(params), review_float.BEFORE, finish)
    end
  end
  asking[params.turnId] = function()
    if float then
      float:close()
    else
      finish()
    end
  end
  -- The keys that a user is typing must not answer the question.
  if vim.api.nvim_get_mode().mode == 'n' then
    vim.schedule(begin)
  else
    messages.say('a change is waiting for your review, as soon as you are in Normal mode')
    vim.api.nvim_create_autocmd('ModeChanged', { pattern = '*:n', once = true, callback = vim.schedule_wrap(begin) })
  end
  coroutine.yield()
  return answer_of(hunks)
end

--- Close the question of a turn that has ended, for example because the user has stopped it.
---@param token string|integer the progress token, which contains the id of the turn
function M.forget(token)
  for turn_id, finish in pairs(asking) do
    if tostring(token):find(turn_id, 1, true) then
      finish()
    end
  end
end

return M
