--- thinklsp for Neovim: setup, the start of the language client and the status line.
local M = {}

---@class thinklsp.Options
---@field cmd? string[] the server and its arguments
---@field root_markers? string[] names of files or folders that mark the root folder of a project
---@field settings? table<string, any> settings of the server, e.g. `{ effort = 'high', ['thinking.mode'] = 'off' }`

local started = false

--- Set options and start the client. Calling it is optional; call it again to change settings later.
---@param options? thinklsp.Options They win over the ones in `vim.g.thinklsp`.
function M.setup(options)
  require('thinklsp.client').configure(vim.tbl_extend('keep', options or {}, vim.g.thinklsp or {}))
  started = true
end

--- Start the client with the default options unless setup() was called.
function M.start()
  if not started then
    M.setup()
  end
end

--- Return the status of the newest turn for a status line, e.g. `⠹ thinking · 12 s · 340 tokens`, or an empty string.
--- With the simulator, it begins with `offline`. The call is cheap: it only looks up tables.
---@return string
function M.status()
  local status = require('thinklsp.progress').status()
  if not require('thinklsp.client').is_offline() then
    return status
  end
  return status == '' and 'offline' or 'offline · ' .. status
end

return M
