--- The language client: it starts the server, attaches it to buffers and sends commands to it.
local bridge = require('thinklsp.bridge')
local diagnostics = require('thinklsp.diagnostics')
local handlers = require('thinklsp.handlers')
local mentions = require('thinklsp.mentions')
local messages = require('thinklsp.messages')
local progress = require('thinklsp.progress')
local rpc = require('thinklsp.rpc')
local stream = require('thinklsp.stream')

local M = {}

M.NAME = 'thinklsp'
local HAS_CONFIG = rpc.HAS_METHODS

---@type string? the provider of the next turn, according to the server's latest answer
local provider

---@type { cmd: string[], root_markers: string[], settings: table<string, any> }
M.options = { cmd = { 'thinklsp' }, root_markers = { '.git', '.thinklsp' }, settings = {} }

---@param bufnr integer
---@return boolean
local function is_file(bufnr)
  local name = vim.api.nvim_buf_get_name(bufnr)
  return vim.bo[bufnr].buftype == '' and name ~= '' and not name:match('^%a[%w+.-]+://')
end

--- Return the folder that the model's tools can read, or nil if they can read only open documents.
---@param bufnr integer
---@return string?
local function root_of(bufnr)
  local found = vim.fs.root(bufnr, M.options.root_markers)
  if found then
    return found
  end
  local cwd, name = vim.fs.normalize(vim.fn.getcwd()), vim.fs.normalize(vim.api.nvim_buf_get_name(bufnr))
  return vim.startswith(name, cwd .. '/') and cwd or nil
end

--- Start the server over stdio. Add the diagnostics of all servers to code action requests, and the words after `#` to
--- the completion in chat documents.
local function spawn(dispatchers)
  local rpc = vim.lsp.rpc.start(M.options.cmd, dispatchers)
  local request = rpc.request
  rpc.request = function(method, params, on_answer, ...) ---@diagnostic disable-line: duplicate-set-field
    local answered = on_answer
    local bufnr = params and params.textDocument and vim.uri_to_bufnr(params.textDocument.uri)
    if method == 'textDocument/codeAction' then
      params = diagnostics.completed(params, M.NAME)
    elseif method == 'textDocument/completion' and require('thinklsp.chats').is_chat(bufnr) then
      local client = vim.lsp.get_clients({ name = M.NAME, bufnr = bufnr })[1]
      answered = vim.schedule_wrap(function(err, answer)
        on_answer(err, err and answer or mentions.completed(params, client and client.root_dir, answer))
      end)
    end
    return request(method, params, answered, ...)
  end
  return rpc
end

--- Return handlers for the commands of code actions and code lenses. They show the running turn and its result.
local function commands()
  local found = {}
  for _, name in ipairs({ 'action', 'send', 'chat', 'apply', 'undo', 'effort' }) do
    local command = 'thinklsp.' .. name
    found[command] = function(lsp_command, context)
      require('thinklsp.commands').execute(command, (lsp_command.arguments or {})[1] or {}, context.bufnr)
    end
  end
  return found
end

---@return vim.lsp.ClientConfig
local function configuration()
  return {
    name = M.NAME,
    cmd = spawn,
    capabilities = bridge.announced(vim.lsp.protocol.make_client_capabilities()),
    handlers = bridge.with_handlers(vim.deepcopy(handlers.BY_METHOD)),
    commands = commands(),
    -- Neovim would encode an empty table as a list.
    settings = next(M.options.settings) and { thinklsp = M.options.settings } or nil,
    on_init = function(client)
      M.look(client.id)
      local completion = client.server_capabilities.completionProvider
      if completion then
        table.insert(completion.triggerCharacters, '#')
      end
    end,
    on_exit = vim.schedule_wrap(function(_, _, client_id)
      provider = nil
      progress.forget(client_id)
      stream.forget(client_id)
    end),
  }
end

--- Attach the client to a file. From Neovim 0.11 on, Neovim itself attaches it to files that have a file type.
---@param bufnr integer
local function attach(bufnr)
  if not vim.api.nvim_buf_is_loaded(bufnr) or not is_file(bufnr) then
    return
  end
  if HAS_CONFIG and vim.bo[bufnr].filetype ~= '' then
    return
  end
  local config = HAS_CONFIG and vim.lsp.config[M.NAME] or configuration()
  vim.lsp.start(vim.tbl_extend('force', config, { root_dir = root_of(bufnr) }), { bufnr = bufnr })
end

local function attach_by_ourselves()
  local group = vim.api.nvim_create_augroup('thinklsp', {})
  vim.api.nvim_create_autocmd({ 'FileType', 'BufReadPost', 'BufNewFile' }, {
    group = group,
    callback = function(event)
      -- Wait until the other autocommands have determined the file type.
      vim.schedule(function()
        if vim.api.nvim_buf_is_valid(event.buf) then
          attach(event.buf)
        end
      end)
    end,
  })
  vim.api.nvim_create_autocmd('BufWritePost', {
    group = group,
    pattern = '*/config.toml',
    callback = function()
      for _, client in ipairs(vim.lsp.get_clients({ name = M.NAME })) do
        M.look(client.id)
      end
    end,
  })
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    attach(bufnr)
  end
end

--- Start the client, and send changed settings to clients that are already running.
---@param options thinklsp.Options
function M.configure(options)
  M.options = vim.tbl_extend('force', M.options, options)
  if vim.fn.executable(M.options.cmd[1]) == 0 then
    messages.warn(('the program %s was not found; see :checkhealth thinklsp'):format(M.options.cmd[1]))
    return
  end
  if HAS_CONFIG then
    local config = configuration()
    config.root_dir = function(bufnr, on_dir)
      if is_file(bufnr) then
        on_dir(root_of(bufnr))
      end
    end
    vim.lsp.config(M.NAME, config)
    vim.lsp.enable(M.NAME)
  end
  attach_by_ourselves()
  for _, client in ipairs(vim.lsp.get_clients({ name = M.NAME })) do
    client.settings = { thinklsp = next(M.options.settings) and M.options.settings or vim.empty_dict() }
    rpc.call(client, 'notify', 'workspace/didChangeConfiguration', { settings = client.settings })
    M.look(client.id)
  end
end

--- Return the client of a buffer, or else any running client. If there is none, warn the user and return nil.
---@param bufnr integer
---@return vim.lsp.Client?
function M.of(bufnr)
  local client = vim.lsp.get_clients({ name = M.NAME, bufnr = bufnr })[1] or vim.lsp.get_clients({ name = M.NAME })[1]
  if not client then
    messages.warn('the server is not running here; see :checkhealth thinklsp')
  end
  return client
end

--- Send a notification.
---@param client vim.lsp.Client
---@param method string
---@param params table
function M.notify(client, method, params)
  rpc.call(client, 'notify', method, params)
end

---@param command string
---@param argument table
local function params_of(command, argument)
  return { command = command, arguments = { next(argument) and argument or vim.empty_dict() } }
end

--- Return an answer without JSON's null values, which newer Neovim versions keep as `vim.NIL`.
---@param value any
---@return any
local function plain(value)
  if value == vim.NIL then
    return nil
  elseif type(value) ~= 'table' then
    return value
  end
  local found = {}
  for key, item in pairs(value) do
    found[key] = plain(item)
  end
  return found
end

--- Execute a command of the server. If the server returns an error, show the error and pass nil to `on_answer`.
---@param client vim.lsp.Client
---@param command string
---@param argument table
---@param bufnr integer
---@param on_answer fun(answer: any)
---@param on_error? fun(message: string) shows the error
function M.ask(client, command, argument, bufnr, on_answer, on_error)
  rpc.call(client, 'request', 'workspace/executeCommand', params_of(command, argument), function(err, answer)
    if err then
      (on_error or messages.warn)(err.message)
    end
    on_answer(plain(answer))
  end, bufnr)
end

--- Ask the server for the provider of the next turn.
---@param client_id integer
function M.look(client_id)
  local client = vim.lsp.get_client_by_id(client_id)
  if client then
    M.ask(client, 'thinklsp.model', {}, 0, function(answer)
      provider = answer and answer.provider
      vim.cmd.redrawstatus({ bang = true })
    end, function() end)
  end
end

--- Return true if the simulator answers, which the options, the environment or the user's settings file can choose.
---@return boolean
function M.is_offline()
  local chosen = M.options.settings.provider
  return chosen == 'simulator' or (provider or chosen or vim.env.THINKLSP_PROVIDER) == 'simulator'
end

--- Start the server again with the current environment, and pass the doctor's report on, or nil without one.
---@param on_report fun(report: table?)
function M.restart(on_report)
  local function running()
    return vim.lsp.get_clients({ name = M.NAME })
  end
  local bufnrs = {}
  for _, client in ipairs(running()) do
    vim.list_extend(bufnrs, vim.tbl_keys(client.attached_buffers))
    rpc.call(client, 'stop')
  end
  vim.wait(5000, function()
    return #running() == 0
  end, 20)
  for _, bufnr in ipairs(bufnrs) do
    local config = vim.tbl_extend('force', configuration(), { root_dir = root_of(bufnr) })
    vim.lsp.start(config, { bufnr = bufnr })
  end
  -- A client counts as running when it is initialized.
  vim.wait(10000, function()
    return #running() > 0
  end, 20)
  local client = running()[1]
  if client then
    M.ask(client, 'thinklsp.doctor', {}, bufnrs[1], on_report)
  else
    on_report(nil)
  end
end

--- Execute a command of the server and wait for the answer. Return nil if the answer does not come in time.
---@param client vim.lsp.Client
---@param command string
---@param argument table
---@param patience? integer the time limit in milliseconds, one second by default
---@return any
function M.ask_now(client, command, argument, patience)
  local params = params_of(command, argument)
  local answer = rpc.call(client, 'request_sync', 'workspace/executeCommand', params, patience or 1000, 0)
  return answer and plain(answer.result)
end

--- Cancel the newest turn.
---@param bufnr integer
function M.stop(bufnr)
  local work = progress.newest()
  local client = work and vim.lsp.get_client_by_id(work.client_id)
  if work and client then
    rpc.call(client, 'notify', 'window/workDoneProgress/cancel', { token = work.token })
    return
  end
  client = M.of(bufnr)
  if client then
    -- A turn that started a moment ago has no progress yet.
    M.ask(client, 'thinklsp.cancel', {}, bufnr, function(answer)
      if answer and #answer.cancelled == 0 then
        messages.say('no turn is running')
      end
    end)
  end
end

return M
