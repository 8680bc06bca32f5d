--- Diffs of changes, as lines that begin with `-` or `+`.
local diagnostics = require('thinklsp.diagnostics')

local M = {}

--- Return the lines of a text with a sign in front.
---@param sign string
---@param text string
---@return string[]
function M.signed(sign, text)
  return vim.tbl_map(function(line)
    return sign .. line
  end, vim.split(text:gsub('\n$', ''), '\n'))
end

--- Return the lines of a diff between two texts, all removed lines first.
---@param before string
---@param after string
---@return string[]
function M.between(before, after)
  local found = before ~= '' and M.signed('-', before) or {}
  return vim.list_extend(found, after ~= '' and M.signed('+', after) or {})
end

--- Return the lines that a text edit replaces and their new text, as a diff.
---@param bufnr integer
---@param edit lsp.TextEdit
---@param encoding string
---@return string[]
function M.of_edit(bufnr, edit, encoding)
  local first, last = edit.range.start, edit.range['end']
  local from = diagnostics.column(bufnr, first, encoding)
  local to = diagnostics.column(bufnr, last, encoding)
  local lines = vim.api.nvim_buf_get_lines(bufnr, first.line, last.line + 1, false)
  local head, tail = (lines[1] or ''):sub(1, from), (lines[last.line - first.line + 1] or ''):sub(to + 1)
  local before, after = table.concat(lines, '\n'), head .. edit.newText .. tail
  if last.character == 0 and from == 0 then
    -- Whole lines are replaced: the line after them stays as it is.
    before = before:sub(1, #before - #tail)
    after = edit.newText
  end
  return M.between(before, after)
end

return M
