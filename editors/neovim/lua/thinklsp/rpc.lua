--- Calls of the methods of a language client.
local M = {}

M.HAS_METHODS = vim.fn.has('nvim-0.11') == 1

--- Call a method of a client. Before Neovim 0.11, client methods do not take `self`.
---@param client vim.lsp.Client
---@param method string
function M.call(client, method, ...)
  if M.HAS_METHODS then
    return client[method](client, ...)
  end
  return client[method](...)
end

return M
