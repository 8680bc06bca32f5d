--- Edits of the server before Neovim applies them.
local M = {}

--- A buffer in which something was typed since the edit was made. Neovim skips such a document and yet says that the
--- edit was applied, so that its text would be lost.
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

return M
