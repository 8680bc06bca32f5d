--- Diagnostics of all servers for code action requests. Neovim itself sends each server only its own diagnostics.
local M = {}

--- Convert a row and a column of a buffer to an LSP position in the server's encoding.
---@param bufnr integer
---@param row integer
---@param column integer in bytes
---@param encoding string
---@return lsp.Position
function M.position(bufnr, row, column, encoding)
  local line = vim.api.nvim_buf_get_lines(bufnr, row, row + 1, false)[1] or ''
  column = math.min(column, #line)
  local character = column
  if encoding == 'utf-16' then
    character = vim.fn.utf16idx(line, column)
  elseif encoding == 'utf-32' then
    character = vim.fn.charidx(line, column)
  end
  if character < 0 then
    -- The column is after the last character.
    character = encoding == 'utf-16' and vim.fn.strutf16len(line) or vim.fn.strchars(line)
  end
  return { line = row, character = character }
end

--- Convert an LSP position in the server's encoding to a column in bytes.
---@param bufnr integer
---@param position lsp.Position
---@param encoding string
---@return integer
function M.column(bufnr, position, encoding)
  local line = vim.api.nvim_buf_get_lines(bufnr, position.line, position.line + 1, false)[1] or ''
  if encoding == 'utf-8' then
    return math.min(position.character, #line)
  end
  local column = vim.fn.byteidx(line, position.character, encoding == 'utf-16')
  return column < 0 and #line or column
end

---@param diagnostic vim.Diagnostic
---@param encoding string
---@return lsp.Diagnostic
function M.as_lsp(diagnostic, encoding)
  local bufnr = diagnostic.bufnr
  return {
    range = {
      start = M.position(bufnr, diagnostic.lnum, diagnostic.col, encoding),
      ['end'] = M.position(
        bufnr,
        diagnostic.end_lnum or diagnostic.lnum,
        diagnostic.end_col or diagnostic.col,
        encoding
      ),
    },
    severity = diagnostic.severity,
    message = diagnostic.message,
    source = diagnostic.source,
    code = diagnostic.code,
  }
end

--- Add the diagnostics of all sources in the requested lines to a code action request that has no diagnostics.
---@param params lsp.CodeActionParams
---@param name string of the client
---@return lsp.CodeActionParams
function M.completed(params, name)
  local bufnr = vim.uri_to_bufnr(params.textDocument.uri)
  local client = vim.lsp.get_clients({ name = name, bufnr = bufnr })[1]
  if not client or next(params.context.diagnostics or {}) then
    return params
  end
  local first, last = params.range.start.line, params.range['end'].line
  local found = {}
  for _, diagnostic in ipairs(vim.diagnostic.get(bufnr)) do
    if diagnostic.lnum <= last and (diagnostic.end_lnum or diagnostic.lnum) >= first then
      table.insert(found, M.as_lsp(diagnostic, client.offset_encoding))
    end
  end
  if #found == 0 then
    return params
  end
  return vim.tbl_deep_extend('force', params, { context = { diagnostics = found } })
end

return M
