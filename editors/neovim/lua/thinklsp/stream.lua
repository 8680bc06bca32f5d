--- The display of an answer while the model writes it: virtual lines below the prompt. The server writes the complete
--- answer into the chat document; the virtual lines then disappear and are never part of the buffer's text.
local changes = require('thinklsp.changes')
local progress = require('thinklsp.progress')

local M = {}

local NAMESPACE = vim.api.nvim_create_namespace('thinklsp')
local MOST_LINES = 12

---@class thinklsp.Stream
---@field bufnr integer
---@field mark integer the extmark of the virtual lines
---@field client_id? integer
---@field turn_id? string
---@field token? string the token of the turn's partial results
---@field text string the text of the model's current message so far
---@field whole boolean true if the next text belongs to another message
---@field on_end fun()
---@field hidden boolean true if an edit of the server may already contain the text
local Stream = {}
Stream.__index = Stream

---@type table<thinklsp.Stream, true>
local open = {}
local made = 0

---@param text string
---@param width integer
---@return string[] lines the last lines, each at most `width` columns wide
local function wrapped(text, width)
  local lines = {}
  for _, line in ipairs(vim.split(text, '\n')) do
    line = line:gsub('\t', '    ')
    repeat
      local part = vim.fn.strcharpart(line, 0, width)
      while vim.fn.strdisplaywidth(part) > width do
        part = vim.fn.strcharpart(part, 0, vim.fn.strchars(part) - 1)
      end
      table.insert(lines, part)
      line = line:sub(#part + 1)
    until line == '' or part == ''
  end
  return vim.list_slice(lines, math.max(1, #lines - MOST_LINES + 1))
end

--- Scroll the window so that screen lines below a visible row are visible, too, but never past the cursor.
---@param winid integer
---@param row integer
---@param count integer the number of these screen lines
local function make_room(winid, row, count)
  vim.api.nvim_win_call(winid, function()
    local view = vim.fn.winsaveview()
    local top, room = view.topline, vim.api.nvim_win_get_height(winid) - count
    while top < view.lnum and vim.api.nvim_win_text_height(winid, { start_row = top - 1, end_row = row }).all > room do
      top = top + 1
    end
    -- A wrapped last line may be hidden.
    if view.topline <= row + 1 and top > view.topline and vim.fn.line('w$') >= row then
      vim.fn.winrestview({ topline = top })
    end
  end)
end

function Stream:render()
  if not vim.api.nvim_buf_is_valid(self.bufnr) then
    return self:close()
  end
  local row = vim.api.nvim_buf_get_extmark_by_id(self.bufnr, NAMESPACE, self.mark, {})[1]
  if not row then
    return self:close()
  end
  local winid = vim.fn.win_findbuf(self.bufnr)[1]
  local width = winid and vim.api.nvim_win_get_width(winid) - vim.fn.getwininfo(winid)[1].textoff or 80
  local status = self.turn_id and progress.of_turn(self.client_id, self.turn_id) or 'thinklsp'
  local lines = { { { vim.fn.strcharpart(status, 0, width), 'ThinklspStatus' } } }
  if self.text ~= '' and not self.hidden then
    for _, line in ipairs(wrapped(self.text, math.max(width, 20))) do
      table.insert(lines, { { line, 'ThinklspText' } })
    end
  end
  vim.api.nvim_buf_set_extmark(self.bufnr, NAMESPACE, row, 0, { id = self.mark, virt_lines = lines })
  if winid and vim.api.nvim_win_call(winid, function()
    return vim.fn.nextnonblank(row + 2)
  end) == 0 then
    make_room(winid, row, #lines)
  end
end

--- Scroll to the answer, which the server has written below the prompt of a chat document.
function Stream:reveal()
  local winid = require('thinklsp.chats').is_chat(self.bufnr) and vim.fn.win_findbuf(self.bufnr)[1]
  local row = vim.api.nvim_buf_get_extmark_by_id(self.bufnr, NAMESPACE, self.mark, {})[1]
  if winid and row and row + 1 < vim.api.nvim_buf_line_count(self.bufnr) then
    make_room(winid, row, vim.api.nvim_win_text_height(winid, { start_row = row + 1 }).all)
  end
end

--- Process one partial result.
---@param value { kind: string, delta: string? }
function Stream:take(value)
  if value.kind == 'finished' then
    self:reveal()
    self:close()
    changes.claim(value.result)
    self.on_end()
  elseif value.kind == 'text' then
    -- After a tool call, the model starts another message.
    self.text = (self.whole and '' or self.text) .. value.delta
    self.whole, self.hidden = false, false
    self:render()
  elseif value.kind == 'restart' then
    -- The old text stays visible until the new one begins.
    self.whole = true
  elseif value.kind ~= 'thinking' then
    self.whole = true
  end
end

--- Show the answer of a turn, which runs in the background and ends in a chat document.
---@param client_id integer
---@param turn_id string
---@return string token the token for requesting the turn's partial results
function Stream:follow(client_id, turn_id)
  made = made + 1
  self.client_id, self.turn_id, self.token = client_id, turn_id, ('thinklsp-stream-%d'):format(made)
  self:render()
  return self.token
end

function Stream:close()
  open[self] = nil
  if vim.api.nvim_buf_is_valid(self.bufnr) then
    vim.api.nvim_buf_del_extmark(self.bufnr, NAMESPACE, self.mark)
  end
end

--- Create the display of the next answer, below `row`, which counts from 0.
---@param bufnr integer
---@param row integer
---@param on_end fun() called after the turn
---@return thinklsp.Stream
function M.open(bufnr, row, on_end)
  row = math.max(0, math.min(row, vim.api.nvim_buf_line_count(bufnr) - 1))
  local mark = vim.api.nvim_buf_set_extmark(bufnr, NAMESPACE, row, 0, {})
  local self = setmetatable({ bufnr = bufnr, mark = mark, text = '', whole = false, hidden = false }, Stream)
  self.on_end = on_end
  open[self] = true
  return self
end

--- Process a progress value. Return true if its token belongs to a display, so that no other handler gets it.
---@param token string|integer
---@param value { kind: string, delta: string? }
---@return boolean
function M.take(token, value)
  for stream in pairs(open) do
    if stream.token == token then
      stream:take(value)
      return true
    end
  end
  return type(token) == 'string' and vim.startswith(token, 'thinklsp-stream-')
end

--- Return the text of a turn's display, or an empty string.
---@param turn_id string
---@return string
function M.text_of(turn_id)
  for stream in pairs(open) do
    if stream.turn_id == turn_id then
      return stream.text
    end
  end
  return ''
end

--- Update the displays after a change of the turns' status.
function M.refresh()
  for stream in pairs(open) do
    if stream.turn_id then
      stream:render()
    end
  end
end

--- Hide the displays of a client while Neovim applies an edit, so that no text appears twice. The display of a running
--- turn reappears with its next text, and all displays reappear if the edit was not applied.
---@param client_id integer
---@param hidden boolean
function M.hide(client_id, hidden)
  for stream in pairs(open) do
    if stream.client_id == client_id then
      stream.hidden = hidden
      stream:render()
    end
  end
end

--- Close the displays of a client that has exited.
---@param client_id integer
function M.forget(client_id)
  for stream in pairs(open) do
    if stream.client_id == client_id then
      stream:close()
    end
  end
end

vim.api.nvim_set_hl(0, 'ThinklspStatus', { default = true, link = 'Comment' })
vim.api.nvim_set_hl(0, 'ThinklspText', { default = true, link = 'NonText' })

return M
