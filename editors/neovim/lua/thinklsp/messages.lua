--- Messages to the user. Each takes one line of the screen, because Neovim waits for Enter after a longer one.
local M = {}

local MOST = 100

---@type string[] the latest messages in full, oldest first
local latest = {}

--- Return true if no plugin shows the messages in a place of its own, which has room for long ones.
---@return boolean
local function is_command_line()
  local source = debug.getinfo(vim.notify, 'S').source
  -- Since Neovim 0.12, its own functions have no debug information.
  return source:find('^@vim/_') ~= nil or source:find('^=?%?$') ~= nil
end

---@param text string
---@return string
local function one_line(text)
  text = text:gsub('%s+', ' ')
  local width = vim.v.echospace - 1
  if vim.fn.strdisplaywidth(text) <= width then
    return text
  end
  repeat
    text = vim.fn.strcharpart(text, 0, vim.fn.strchars(text) - 1)
  until vim.fn.strdisplaywidth(text) < width
  return text .. '…'
end

--- Show a message. `:Thinklsp messages` shows it in full.
---@param text string
---@param level? integer
function M.say(text, level)
  text = 'thinklsp: ' .. text
  table.insert(latest, text)
  if #latest > MOST then
    table.remove(latest, 1)
  end
  if is_command_line() then
    -- Without the redraw, a second message at the same time would scroll the first, and Neovim would wait for Enter.
    vim.cmd.redraw()
    text = one_line(text)
  end
  vim.notify(text, level)
end

---@param text string
function M.warn(text)
  M.say(text, vim.log.levels.WARN)
end

--- Return the sentence of an error without the places in Lua and Vim script from which it comes.
---@param problem any
---@return string
function M.cause_of(problem)
  local sentence = tostring(problem):match('^[^\n]*')
  sentence = sentence:gsub('^.*Autocommands for "[^"]*": ', '')
  return (sentence:gsub('^%S*:%d+: ', ''):gsub('^Vim%b():', ''):gsub('^Vim:', ''))
end

--- Return the latest messages in full, oldest first.
---@return string
function M.all()
  return table.concat(latest, '\n')
end

return M
