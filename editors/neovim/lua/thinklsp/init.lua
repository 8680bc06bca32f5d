--- thinklsp for Neovim: settings, the start of the language client, and what goes into a status line.
local M = {}

---@class thinklsp.Options
---@field cmd? string[] the server and its arguments
---@field root_markers? string[] what the root folder of a project holds
---@field settings? table<string, any> settings of the server, as `{ effort = 'high', ['thinking.mode'] = 'off' }`

local started = false

--- Chooses options and starts the client. Not needed where the defaults do; may be called again to change settings.
---@param options? thinklsp.Options
function M.setup(options)
  require('thinklsp.client').configure(options or {})
  started = true
end

--- Starts with the defaults unless setup() has been called.
function M.start()
  if not started then
    M.setup()
  end
end

--- What runs, for a status line: `⠹ thinking · 12 s · 340 tokens`; empty while nothing does. Costs a table look-up.
---@return string
function M.status()
  return require('thinklsp.progress').status()
end

return M
