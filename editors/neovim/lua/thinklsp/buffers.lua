--- The buffers of files, which may not be loaded yet.
local messages = require('thinklsp.messages')

local M = {}

--- Return the buffer of a file, loaded. A failing autocommand of the user, for example in a file type plugin, leaves the
--- buffer loaded, so its error is only shown.
---@param uri string
---@return integer bufnr
function M.load(uri)
  local bufnr = vim.uri_to_bufnr(uri)
  if not vim.api.nvim_buf_is_loaded(bufnr) then
    local is_loaded, problem = pcall(vim.fn.bufload, bufnr)
    if not is_loaded then
      local name = vim.fs.basename(vim.uri_to_fname(uri))
      messages.warn(('your configuration failed when %s was loaded: %s'):format(name, messages.cause_of(problem)))
    end
  end
  return bufnr
end

--- Run a function on the text of a file, and return its result. A file that is not loaded stays so, because other servers
--- would attach to it; the function then gets a scratch buffer.
---@generic T
---@param uri string
---@param run fun(bufnr: integer): T
---@return T
function M.look_at(uri, run)
  local bufnr, path = vim.uri_to_bufnr(uri), vim.uri_to_fname(uri)
  if vim.api.nvim_buf_is_loaded(bufnr) then
    return run(bufnr)
  end
  local scratch = vim.api.nvim_create_buf(false, true)
  local lines = vim.fn.filereadable(path) == 1 and vim.fn.readfile(path) or {}
  for row, line in ipairs(lines) do
    -- Neovim writes a NUL in a line as a line feed.
    lines[row] = line:gsub('\r$', ''):gsub('\n', '\0')
  end
  lines[1] = lines[1] and lines[1]:gsub('^\239\187\191', '')
  vim.api.nvim_buf_set_lines(scratch, 0, -1, false, lines)
  local result = run(scratch)
  vim.api.nvim_buf_delete(scratch, { force = true })
  return result
end

return M
