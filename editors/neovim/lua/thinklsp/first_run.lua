--- The first steps without a key: set an API key, use a server on this machine, or try thinklsp offline.
local messages = require('thinklsp.messages')

local M = {}

local PORTS = { 11434, 1234, 8000, 8080 }
local PATIENCE = 1000 -- milliseconds
local KEYS = {
  { name = 'Anthropic', variable = 'ANTHROPIC_API_KEY', page = 'https://console.anthropic.com/settings/keys' },
  { name = 'OpenAI', variable = 'OPENAI_API_KEY', page = 'https://platform.openai.com/api-keys' },
  { name = 'Google', variable = 'GEMINI_API_KEY', page = 'https://aistudio.google.com/apikey' },
}

--- Pass on the ports of 127.0.0.1 at which a server lists its models.
---@param on_found fun(ports: integer[])
local function find_servers(on_found)
  local found, left = {}, #PORTS
  for _, port in ipairs(PORTS) do
    local socket, text, timer = assert(vim.uv.new_tcp()), '', assert(vim.uv.new_timer())
    local function finish()
      if timer:is_closing() then
        return
      end
      timer:close()
      socket:close()
      if text:find('^HTTP/%S+ 200') and text:find('"data"', 1, true) then
        table.insert(found, port)
      end
      left = left - 1
      if left == 0 then
        table.sort(found)
        vim.schedule(function()
          on_found(found)
        end)
      end
    end
    timer:start(PATIENCE, 0, finish)
    socket:connect('127.0.0.1', port, function(problem)
      if problem then
        return finish()
      end
      socket:write('GET /v1/models HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n')
      socket:read_start(function(failed, data)
        text = text .. (data or '')
        if failed or not data then
          finish()
        end
      end)
    end)
  end
end

--- Append lines to the user's settings file.
---@param file string
---@param lines string[]
---@return string? problem
local function append(file, lines)
  vim.fn.mkdir(vim.fs.dirname(file), 'p', '0700')
  local is_new = vim.fn.filereadable(file) == 0
  if not is_new and vim.tbl_contains(vim.fn.readfile(file), lines[1]) then
    return ('%s already has %s; change its base_url there'):format(file, lines[1])
  end
  local text = (is_new and '' or '\n') .. table.concat(lines, '\n') .. '\n'
  local handle, problem = vim.uv.fs_open(file, 'a', 384) -- 0600
  if not handle then
    return problem
  end
  local written, failure = vim.uv.fs_write(handle, text)
  vim.uv.fs_close(handle)
  return not written and failure or nil
end

---@param file string the user's settings file
---@param retry fun()
local function use_server(file, retry)
  find_servers(function(ports)
    if #ports == 0 then
      messages.warn(('no model server answers on 127.0.0.1 at port %s'):format(table.concat(PORTS, ', ')))
      return
    end
    vim.ui.select(ports, {
      prompt = 'Local server',
      format_item = function(port)
        return ('http://127.0.0.1:%d/v1'):format(port)
      end,
    }, function(port)
      if not port then
        return
      end
      local lines =
        { '[providers.openai-compatible]', ('base_url = "http://127.0.0.1:%d/v1"'):format(port) }
      vim.ui.select({ 'Yes, write them', 'No' }, {
        prompt = ('Add these two lines to %s?\n%s\n'):format(file, table.concat(lines, '\n')),
      }, function(word)
        if not vim.startswith(word or '', 'Yes') then
          return
        end
        local problem = append(file, lines)
        if problem then
          messages.warn(problem)
        else
          retry()
        end
      end)
    end)
  end)
end

--- Ask for a key until one works or the user gives none.
---@param key { name: string, variable: string, page: string }
---@param retry fun()
local function ask_for_key(key, retry)
  local client = require('thinklsp.client')
  local value = vim.trim(vim.fn.inputsecret(('API key for %s (from %s): '):format(key.name, key.page)))
  if value == '' then
    return
  end
  local before, settings = vim.env[key.variable], client.options.settings
  vim.env[key.variable] = value
  if settings.provider == 'simulator' then
    -- Neovim merges settings, so a value that is left out would stay.
    client.configure({ settings = vim.tbl_extend('force', settings, { provider = 'auto' }) })
  end
  client.restart(function(report)
    if report and report.canRun then
      messages.say(('the key works until you leave Neovim; to keep it, set %s in your shell'):format(key.variable))
      retry()
      return
    end
    vim.env[key.variable] = before
    local problem = report and report.problems[#report.problems] or 'The server did not answer.'
    vim.ui.select({ 'Try again', 'Not now' }, {
      prompt = ('The key for %s does not work. %s'):format(key.name, problem),
    }, function(word)
      if word == 'Try again' then
        ask_for_key(key, retry)
      else
        client.restart(function() end)
      end
    end)
  end)
end

---@param retry fun()
local function set_key(retry)
  vim.ui.select(KEYS, {
    prompt = 'Provider',
    format_item = function(key)
      return ('%s  %s'):format(key.name, key.page)
    end,
  }, function(key)
    if key then
      ask_for_key(key, retry)
    end
  end)
end

--- Run a function when the server uses the simulator. It asks for changed settings, which takes a moment.
---@param tries integer
---@param run fun()
local function when_offline(tries, run)
  local client = require('thinklsp.client')
  local found = client.of(0)
  if not found then
    return
  end
  client.ask(found, 'thinklsp.doctor', {}, 0, function(report)
    if report and report.settings and report.settings.values.provider == 'simulator' then
      run()
    elseif tries > 0 then
      vim.defer_fn(function()
        when_offline(tries - 1, run)
      end, 50)
    end
  end)
end

---@param retry fun()
local function try_offline(retry)
  local client = require('thinklsp.client')
  client.configure({ settings = vim.tbl_extend('force', client.options.settings, { provider = 'simulator' }) })
  messages.say('offline: a simulator answers, and no model is called')
  when_offline(100, retry)
end

--- Offer the three ways to a model, and run `retry` after one of them succeeded.
---@param report table the doctor's report
---@param retry fun()
function M.offer(report, retry)
  local ways = {
    { name = 'Set an API key', run = set_key },
    {
      name = 'Use a local server',
      run = function()
        use_server(report.settings.file, retry)
      end,
    },
    { name = 'Try offline', run = try_offline },
  }
  vim.ui.select(ways, {
    prompt = 'Choose a model for thinklsp',
    format_item = function(way)
      return way.name
    end,
  }, function(way)
    if way then
      way.run(retry)
    end
  end)
end

--- Return true if no provider has a key and none was chosen.
---@param report table? the doctor's report
---@return boolean
function M.is_needed(report)
  return report ~= nil
    and report.settings ~= nil
    and report.settings.values.provider == 'auto'
    and #report.providers.keyed == 0
end

return M
