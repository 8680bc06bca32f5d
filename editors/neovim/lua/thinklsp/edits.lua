--- The server's edits: checks before Neovim applies them, and applying them without a message.
local buffers = require('thinklsp.buffers')
local messages = require('thinklsp.messages')

local M = {}

--- Return a buffer that has changed since the server made the edit, or nil. Neovim skips such buffers but reports the
--- edit as applied, so the edit would be lost.
---@param edit lsp.WorkspaceEdit
---@return integer? bufnr
function M.stale(edit)
  for _, change in ipairs(edit.documentChanges or {}) do
    local version = change.textDocument and change.textDocument.version
    if version and version ~= vim.NIL then
      local bufnr = vim.uri_to_bufnr(change.textDocument.uri)
      if (vim.lsp.util.buf_versions[bufnr] or 0) > version then
        return bufnr
      end
    end
  end
end

--- Return true if the edit creates or changes a file whose name ends so.
---@param edit lsp.WorkspaceEdit
---@param ending string
---@return boolean
function M.writes(edit, ending)
  return vim.iter(edit.documentChanges or {}):any(function(change)
    return vim.endswith((change.textDocument or change).uri or '', ending)
  end)
end

--- Return the texts of the files that an edit creates and fills.
---@param edit lsp.WorkspaceEdit
---@return table<string, string> by URI
local function new_texts(edit)
  local created, texts = {}, {}
  for _, change in ipairs(edit.documentChanges or {}) do
    local uri = change.uri or (change.textDocument or {}).uri
    if change.kind == 'create' then
      created[uri] = true
    elseif created[uri] and change.edits then
      texts[uri] = table.concat(vim.tbl_map(function(one)
        return one.newText
      end, change.edits))
    end
  end
  return texts
end

--- Write a new file byte by byte, whatever options and autocommands the user has for buffers, and load it.
---@param uri string
---@param text string
local function write_new(uri, text)
  local path = vim.uri_to_fname(uri)
  assert((vim.uv.fs_stat(path) or { size = 0 }).size == 0, 'the file exists already')
  vim.fn.mkdir(vim.fs.dirname(path), 'p')
  local file = assert(io.open(path, 'wb'))
  local is_written, problem = file:write(text)
  assert(file:close() and is_written, problem)
  buffers.load(uri)
end

---@param change table a text edit or an operation on a file
---@param texts table<string, string> those of the new files
---@param encoding string
local function apply_change(change, texts, encoding)
  if change.kind == 'create' and texts[change.uri] then
    write_new(change.uri, texts[change.uri])
  elseif not change.textDocument then
    vim.lsp.util.apply_workspace_edit({ documentChanges = { change } }, encoding)
  elseif not texts[change.textDocument.uri] then
    buffers.load(change.textDocument.uri)
    vim.lsp.util.apply_workspace_edit({ documentChanges = { change } }, encoding)
  end
end

--- Apply an edit. Neovim's own handler prints the label of each edit.
---@param edit lsp.WorkspaceEdit
---@param encoding string
---@return { applied: boolean, failureReason: string? }
function M.apply(edit, encoding)
  local texts = new_texts(edit)
  for _, change in ipairs(edit.documentChanges or {}) do
    local is_applied, problem = pcall(apply_change, change, texts, encoding)
    if not is_applied then
      return { applied = false, failureReason = messages.cause_of(problem) }
    end
  end
  return { applied = true }
end

return M
