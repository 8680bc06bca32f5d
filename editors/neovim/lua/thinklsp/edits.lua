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

--- Remove the last line end of new files. Neovim inserts text into an empty buffer in front of its only line, so the file
--- would end with an empty line.
---@param edit lsp.WorkspaceEdit
local function trim_new_files(edit)
  local created = {}
  for _, change in ipairs(edit.documentChanges or {}) do
    if change.kind == 'create' then
      created[change.uri] = true
    elseif change.textDocument and created[change.textDocument.uri] then
      local last = change.edits[#change.edits]
      last.newText = last.newText:gsub('\n$', '')
    end
  end
end

--- Delete the files that an edit has created and not filled.
---@param created string[]
local function remove_empty(created)
  for _, uri in ipairs(created) do
    local path = vim.uri_to_fname(uri)
    if (vim.uv.fs_stat(path) or {}).size == 0 then
      vim.fn.delete(path)
      pcall(vim.api.nvim_buf_delete, vim.uri_to_bufnr(uri), { force = true })
    end
  end
end

--- Apply an edit. Neovim's own handler prints the label of each edit.
---@param edit lsp.WorkspaceEdit
---@param encoding string
---@return { applied: boolean, failureReason: string? }
function M.apply(edit, encoding)
  trim_new_files(edit)
  local created = {}
  for _, change in ipairs(edit.documentChanges or {}) do
    if change.kind == 'create' then
      table.insert(created, change.uri)
    elseif change.textDocument then
      buffers.load(change.textDocument.uri)
    end
    local applied, problem = pcall(vim.lsp.util.apply_workspace_edit, { documentChanges = { change } }, encoding)
    if not applied then
      remove_empty(created)
      return { applied = false, failureReason = messages.cause_of(problem) }
    end
  end
  return { applied = true }
end

return M
