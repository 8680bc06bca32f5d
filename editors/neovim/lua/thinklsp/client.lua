--- The language client: how the server is started, to which buffers it belongs, and how it is asked.
local bridge = require('thinklsp.bridge')
local diagnostics = require('thinklsp.diagnostics')
local edits = require('thinklsp.edits')
local progress = require('thinklsp.progress')
local stream = require('thinklsp.stream')

local M = {}

M.NAME = 'thinklsp'
local HAS_CONFIG = vim.fn.has('nvim-0.11') == 1

---@type { cmd: string[], root_markers: string[], settings: table<string, any> }
M.options = { cmd = { 'thinklsp' }, root_markers = { '.git', '.thinklsp' }, settings = {} }

--- Methods of clients took no self before Neovim 0.11.
---@param client vim.lsp.Client
---@param method string
local function call(client, method, ...)
  if HAS_CONFIG then
    return client[method](client, ...)
  end
  return client[method](...)
end

---@param bufnr integer
---@return boolean
local function is_file(bufnr)
  local name = vim.api.nvim_buf_get_name(bufnr)
  return vim.bo[bufnr].buftype == '' and name ~= '' and not name:match('^%a[%w+.-]+://')
end

--- The folder that the tools of the model see; nil: they see open documents only.
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

--- The server over stdio; code-action requests leave with the diagnostics of all servers.
local function spawn(dispatchers)
  local rpc = vim.lsp.rpc.start(M.options.cmd, dispatchers)
  local request = rpc.request
  rpc.request = function(method, params, ...) ---@diagnostic disable-line: duplicate-set-field
    if method == 'textDocument/codeAction' then
      params = diagnostics.completed(params, M.NAME)
    end
    return request(method, params, ...)
  end
  return rpc
end

local function on_progress(err, params, context, config)
  if stream.take(params.token, params.value) then
    return
  end
  vim.lsp.handlers['$/progress'](err, params, context, config)
  progress.take(context.client_id, params.token, params.value)
  stream.refresh()
end

--- As a warning even where a turn failed: Neovim's own would break off whatever it is doing, a completion for example.
local function on_message(_, params)
  local level = params.type <= vim.lsp.protocol.MessageType.Warning and vim.log.levels.WARN or vim.log.levels.INFO
  vim.notify('thinklsp: ' .. params.message, level)
  return vim.NIL
end

local function on_edit(err, params, context, config)
  local client = assert(vim.lsp.get_client_by_id(context.client_id))
  local stale = edits.stale(params.edit)
  if stale then
    -- Any request about a buffer sends first what was typed in it; the server merges and sends its edit once more.
    local about = { textDocument = { uri = vim.uri_from_bufnr(stale) } }
    call(client, 'request', 'textDocument/codeLens', about, function() end, stale)
    return { applied = false, failureReason = 'the document has changed' }
  end
  stream.hide(context.client_id, true)
  local reply = vim.lsp.handlers['workspace/applyEdit'](err, params, context, config)
  if not reply.applied then
    stream.hide(context.client_id, false)
  end
  return reply
end

--- Commands of code actions and lenses that run here, so that their turns are shown and their outcome is told.
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
    handlers = bridge.with_handlers({
      ['$/progress'] = on_progress,
      ['window/showMessage'] = on_message,
      ['workspace/applyEdit'] = on_edit,
    }),
    commands = commands(),
    -- An empty table would leave as a list.
    settings = next(M.options.settings) and { thinklsp = M.options.settings } or nil,
    on_exit = vim.schedule_wrap(function(_, _, client_id)
      progress.forget(client_id)
      stream.forget(client_id)
    end),
  }
end

--- Where Neovim enables servers itself it does so by file type, so only files of none are left to us.
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
      -- When all who look for the file's type have done so.
      vim.schedule(function()
        if vim.api.nvim_buf_is_valid(event.buf) then
          attach(event.buf)
        end
      end)
    end,
  })
  for _, bufnr in ipairs(vim.api.nvim_list_bufs()) do
    attach(bufnr)
  end
end

--- Starts the client, or tells those that run of new settings.
---@param options thinklsp.Options
function M.configure(options)
  M.options = vim.tbl_extend('force', M.options, options)
  if vim.fn.executable(M.options.cmd[1]) == 0 then
    local said = ('thinklsp: there is no program %s; see :checkhealth thinklsp'):format(M.options.cmd[1])
    vim.notify(said, vim.log.levels.WARN)
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
    call(client, 'notify', 'workspace/didChangeConfiguration', { settings = client.settings })
  end
end

--- The client of a buffer, else any one that runs; nil is told to the user.
---@param bufnr integer
---@return vim.lsp.Client?
function M.of(bufnr)
  local client = vim.lsp.get_clients({ name = M.NAME, bufnr = bufnr })[1] or vim.lsp.get_clients({ name = M.NAME })[1]
  if not client then
    vim.notify('thinklsp does not run here; see :checkhealth thinklsp', vim.log.levels.WARN)
  end
  return client
end

---@param command string
---@param argument table
local function params_of(command, argument)
  return { command = command, arguments = { next(argument) and argument or vim.empty_dict() } }
end

--- An answer without the values that JSON calls null, which newer Neovims keep.
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

--- Executes a command; what the server refuses is told to the user and comes back as nil.
---@param client vim.lsp.Client
---@param command string
---@param argument table
---@param bufnr integer
---@param on_answer fun(answer: any)
function M.ask(client, command, argument, bufnr, on_answer)
  call(client, 'request', 'workspace/executeCommand', params_of(command, argument), function(err, answer)
    if err then
      vim.notify('thinklsp: ' .. err.message, vim.log.levels.WARN)
    end
    on_answer(plain(answer))
  end, bufnr)
end

--- The same while Neovim waits; nil where no answer comes soon.
---@param client vim.lsp.Client
---@param command string
---@param argument table
---@param patience? integer in milliseconds, default one second
---@return any
function M.ask_now(client, command, argument, patience)
  local params = params_of(command, argument)
  local answer = call(client, 'request_sync', 'workspace/executeCommand', params, patience or 1000, 0)
  return answer and plain(answer.result)
end

--- Ends a turn as its progress does, the newest one.
---@param bufnr integer
function M.stop(bufnr)
  local work = progress.newest()
  local client = work and vim.lsp.get_client_by_id(work.client_id)
  if work and client then
    call(client, 'notify', 'window/workDoneProgress/cancel', { token = work.token })
    return
  end
  client = M.of(bufnr)
  if client then
    -- A turn that has only just begun has no progress yet.
    M.ask(client, 'thinklsp.cancel', {}, bufnr, function(answer)
      if answer and #answer.cancelled == 0 then
        vim.notify('thinklsp: nothing runs')
      end
    end)
  end
end

return M
