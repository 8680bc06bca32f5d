--- The editor bridge: it answers the requests `thinklsp/editor/…` with the knowledge of the other language servers.
local diagnostics = require('thinklsp.diagnostics')
local freshness = require('thinklsp.freshness')
local review = require('thinklsp.review')
local rpc = require('thinklsp.rpc')

local M = {}

local PATIENCE = 2000 -- milliseconds

---@param bufnr integer
---@return boolean
local function is_file(bufnr)
  return vim.api.nvim_buf_is_loaded(bufnr) and vim.bo[bufnr].buftype == ''
end

--- Return the loaded buffer of a URI, or nil. The function does not open files.
---@param uri string
---@return integer?
local function buffer_of(uri)
  return vim.iter(vim.api.nvim_list_bufs()):find(function(bufnr)
    return is_file(bufnr) and vim.uri_from_bufnr(bufnr) == uri
  end)
end

--- Return the answers of all other servers of a buffer. The asking server is excluded, as it would wait for itself.
---@param asking vim.lsp.Client
---@param bufnr integer?
---@param method string
---@param params_for fun(client: vim.lsp.Client): table
---@return any[]
local function answers(asking, bufnr, method, params_for)
  local running = assert(coroutine.running())
  local found, left, waits, done = {}, 0, false, false
  local timer = assert(vim.uv.new_timer())
  local function go_on()
    if not done then
      done = true
      timer:close()
      if waits then
        coroutine.resume(running)
      end
    end
  end
  local clients = vim.tbl_filter(function(client)
    return client.id ~= asking.id and client.name ~= asking.name
  end, vim.lsp.get_clients({ bufnr = bufnr, method = method }))
  left = #clients
  for _, client in ipairs(clients) do
    local sent = rpc.call(client, 'request', method, params_for(client), function(err, result)
      if not err and result and result ~= vim.NIL then
        table.insert(found, result)
      end
      left = left - 1
      if left == 0 then
        go_on()
      end
    end, bufnr)
    left = sent and left or left - 1
  end
  if left > 0 and not done then
    timer:start(PATIENCE, 0, vim.schedule_wrap(go_on))
    waits = true
    coroutine.yield()
  else
    go_on()
  end
  return found
end

--- Convert the position of a request to the encoding of another server.
---@param asking vim.lsp.Client
---@param bufnr integer
---@param params lsp.TextDocumentPositionParams
---@return fun(client: vim.lsp.Client): table
local function at(asking, bufnr, params)
  return function(client)
    local row = params.position.line
    local column = diagnostics.column(bufnr, params.position, asking.offset_encoding)
    return {
      textDocument = { uri = vim.uri_from_bufnr(bufnr) },
      position = diagnostics.position(bufnr, row, column, client.offset_encoding),
      context = { includeDeclaration = true },
    }
  end
end

--- Return a handler that collects the locations of all servers. Characters stay in the encoding of each server.
---@param method string
local function places(method)
  return function(client, params)
    local bufnr = buffer_of(params.textDocument.uri)
    local found = {}
    for _, answer in ipairs(bufnr and answers(client, bufnr, method, at(client, bufnr, params)) or {}) do
      vim.list_extend(found, vim.islist(answer) and answer or { answer })
    end
    return vim.tbl_map(function(one)
      return one.targetUri and { uri = one.targetUri, range = one.targetRange } or one
    end, found)
  end
end

local function hover(client, params)
  local bufnr = buffer_of(params.textDocument.uri)
  return bufnr and answers(client, bufnr, 'textDocument/hover', at(client, bufnr, params))[1] or vim.NIL
end

local function symbols(client, params)
  local bufnr = params.uri and buffer_of(params.uri)
  if params.uri and not bufnr then
    return {}
  end
  local method = bufnr and 'textDocument/documentSymbol' or 'workspace/symbol'
  local given = bufnr and { textDocument = { uri = params.uri } } or { query = params.query or '' }
  local found = answers(client, bufnr, method, function()
    return given
  end)
  return vim.iter(found):flatten():totable()
end

local function save(_, params)
  local saved = vim.tbl_filter(function(uri)
    local bufnr = buffer_of(uri)
    return bufnr ~= nil
      and pcall(vim.api.nvim_buf_call, bufnr, function()
        vim.cmd('silent update')
      end)
  end, params.uris)
  return { saved = saved }
end

--- Return Neovim's diagnostics for a buffer and the version of the buffer that they belong to.
---@param client vim.lsp.Client
---@param bufnr integer
local function told(client, bufnr)
  local found = vim.tbl_map(function(diagnostic)
    return diagnostics.as_lsp(diagnostic, client.offset_encoding)
  end, vim.diagnostic.get(bufnr))
  return {
    uri = vim.uri_from_bufnr(bufnr),
    version = freshness.of(bufnr) or vim.NIL,
    diagnostics = found,
  }
end

--- Return the diagnostics of all servers and linters. Wait a limited time until they belong to the current text.
local function all_diagnostics(client, params)
  local bufnrs
  if params.uri then
    bufnrs = { buffer_of(params.uri) }
  else
    bufnrs = vim.tbl_filter(function(bufnr)
      return is_file(bufnr) and freshness.of(bufnr) ~= nil
    end, vim.api.nvim_list_bufs())
  end
  freshness.reached(bufnrs)
  return vim.tbl_map(function(bufnr)
    return told(client, bufnr)
  end, vim.tbl_filter(is_file, bufnrs))
end

local ANSWERS = {
  diagnostics = all_diagnostics,
  definition = places('textDocument/definition'),
  references = places('textDocument/references'),
  hover = hover,
  review = review.ask,
  symbols = symbols,
  save = save,
}

--- Add the editor bridge to the client capabilities.
---@param capabilities lsp.ClientCapabilities
---@return lsp.ClientCapabilities
function M.announced(capabilities)
  local names = vim.list_extend(vim.tbl_keys(ANSWERS), { 'kept' })
  table.sort(names)
  return vim.tbl_deep_extend('force', capabilities, { experimental = { thinklsp = { editor = names } } })
end

---@param handlers table<string, lsp.Handler>
---@return table<string, lsp.Handler> handlers including the handlers of the editor bridge
function M.with_handlers(handlers)
  freshness.watch()
  for name, answer in pairs(ANSWERS) do
    handlers['thinklsp/editor/' .. name] = function(_, params, context)
      local client = assert(vim.lsp.get_client_by_id(context.client_id))
      return answer(client, params)
    end
  end
  return handlers
end

return M
