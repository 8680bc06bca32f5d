--- The kinds of change in an edit of the server. Each knows how it looks now and how to take itself back. Extmarks
--- follow changed lines while the user types.
local buffers = require('thinklsp.buffers')
local diagnostics = require('thinklsp.diagnostics')
local diffs = require('thinklsp.diffs')

local M = {}

local NAMESPACE = vim.api.nvim_create_namespace('thinklsp_changes')

---@class thinklsp.Change
---@field uri string
---@field number integer the number of the hunk in its file
---@field look fun(): string?, string[]? the title and the diff, or nil if there is nothing to take back any more
---@field undo fun() raises an error if the change stays

---@param bufnr integer
---@param edit lsp.TextEdit
---@param encoding string
---@return (fun(): string?, string[]?) look, fun() undo
local function change_of_lines(bufnr, edit, encoding)
  local first, last = edit.range.start, edit.range['end']
  local from = diagnostics.column(bufnr, first, encoding)
  local to = diagnostics.column(bufnr, last, encoding)
  local count = vim.api.nvim_buf_line_count(bufnr)
  if last.line >= count then
    -- The place after the last line end does not exist in a buffer.
    last, to = { line = count - 1 }, #vim.api.nvim_buf_get_lines(bufnr, -2, -1, false)[1]
    first, from = first.line >= count and last or first, first.line >= count and to or from
  end
  local before = vim.api.nvim_buf_get_text(bufnr, first.line, from, last.line, to, {})
  local mark = vim.api.nvim_buf_set_extmark(bufnr, NAMESPACE, first.line, from, {
    end_row = last.line,
    end_col = to,
    right_gravity = false,
    end_right_gravity = true,
  })
  local function now()
    if not vim.api.nvim_buf_is_loaded(bufnr) then
      return nil
    end
    local found = vim.api.nvim_buf_get_extmark_by_id(bufnr, NAMESPACE, mark, { details = true })
    if #found == 0 then
      return nil
    end
    local place = { found[1], found[2], found[3].end_row, found[3].end_col }
    local lines = vim.api.nvim_buf_get_text(bufnr, place[1], place[2], place[3], place[4], {})
    if not vim.deep_equal(lines, before) then
      return place, lines
    end
  end
  return function()
    local place, lines = now()
    if not place then
      return nil
    end
    local title, old, new = ('line %d'):format(place[1] + 1), table.concat(before, '\n'), table.concat(lines, '\n')
    if place[2] == 0 and place[4] == 0 then
      return title, diffs.between(old, new)
    end
    local rows = vim.api.nvim_buf_get_lines(bufnr, place[1], place[3] + 1, false)
    local head, tail = rows[1]:sub(1, place[2]), rows[#rows]:sub(place[4] + 1)
    return title, diffs.between(head .. old .. tail, head .. new .. tail)
  end, function()
    local place = now()
    if place then
      -- A file that only the edit has loaded was saved after it.
      local is_hidden = not vim.bo[bufnr].modified and #vim.fn.win_findbuf(bufnr) == 0
      vim.api.nvim_buf_set_text(bufnr, place[1], place[2], place[3], place[4], before)
      if is_hidden then
        vim.api.nvim_buf_call(bufnr, function()
          vim.cmd('silent update')
        end)
      end
    end
  end
end

--- A new file can be taken back until the user changes it.
---@param uri string
---@param texts string[] the parts of its text, filled in later
---@return (fun(): string?, string[]?) look, fun() undo
local function change_of_new_file(uri, texts)
  local path = vim.uri_to_fname(uri)
  local function is_unchanged()
    local bufnr = vim.uri_to_bufnr(uri)
    if vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].modified then
      return false
    end
    local found, lines = pcall(vim.fn.readfile, path, 'b')
    return found and table.concat(lines, '\n') == table.concat(texts)
  end
  return function()
    if is_unchanged() then
      return 'new file', diffs.signed('+', table.concat(texts))
    end
  end, function()
    if is_unchanged() then
      assert(vim.fn.delete(path) == 0, 'the file cannot be deleted')
      pcall(vim.api.nvim_buf_delete, vim.uri_to_bufnr(uri), { force = true })
    end
  end
end

---@param uri string
---@return (fun(): string?, string[]?) look, fun() undo
local function change_of_deleted_file(uri)
  local path = vim.uri_to_fname(uri)
  local found, lines = pcall(vim.fn.readfile, path, 'b')
  return function()
    if found and not vim.uv.fs_stat(path) then
      return 'deleted file', diffs.signed('-', table.concat(lines, '\n'))
    end
  end, function()
    vim.fn.mkdir(vim.fs.dirname(path), 'p')
    vim.fn.writefile(lines, path, 'b')
  end
end

---@param old string
---@param new string
---@return (fun(): string?, string[]?) look, fun() undo
local function change_of_name(old, new)
  return function()
    if vim.uv.fs_stat(new) and not vim.uv.fs_stat(old) then
      return 'renamed to ' .. vim.fn.fnamemodify(new, ':.'), {}
    end
  end, function()
    vim.lsp.util.rename(new, old)
  end
end

--- Return the changes of an edit that is about to be applied.
---@param edit lsp.WorkspaceEdit
---@param encoding string
---@return thinklsp.Change[]
function M.list(edit, encoding)
  local found, counts, created = {}, {}, {}
  local function add(uri, look, undo)
    counts[uri] = (counts[uri] or -1) + 1
    table.insert(found, { uri = uri, number = counts[uri], look = look, undo = undo })
  end
  for _, change in ipairs(edit.documentChanges or {}) do
    if change.kind == 'create' then
      created[change.uri] = {}
      add(change.uri, change_of_new_file(change.uri, created[change.uri]))
    elseif change.kind == 'delete' then
      add(change.uri, change_of_deleted_file(change.uri))
    elseif change.kind == 'rename' then
      add(change.oldUri, change_of_name(vim.uri_to_fname(change.oldUri), vim.uri_to_fname(change.newUri)))
    elseif created[change.textDocument.uri] then
      for _, one in ipairs(change.edits) do
        table.insert(created[change.textDocument.uri], one.newText)
      end
    else
      local bufnr = buffers.load(change.textDocument.uri)
      for _, one in ipairs(change.edits) do
        add(change.textDocument.uri, change_of_lines(bufnr, one, encoding))
      end
    end
  end
  return found
end

return M
