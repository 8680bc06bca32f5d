--- The handlers for progress, messages, documents and edits that the server sends.
local changes = require('thinklsp.changes')
local edits = require('thinklsp.edits')
local messages = require('thinklsp.messages')
local progress = require('thinklsp.progress')
local review = require('thinklsp.review')
local rpc = require('thinklsp.rpc')
local stream = require('thinklsp.stream')

local M = {}

local function on_progress(err, params, context, config)
  if stream.take(params.token, params.value) then
    return
  end
  vim.lsp.handlers['$/progress'](err, params, context, config)
  progress.take(context.client_id, params.token, params.value)
  if params.value.kind == 'end' then
    review.forget(params.token)
    -- The user may have chosen another provider since the turn began.
    require('thinklsp.client').look(context.client_id)
  end
  stream.refresh()
end

--- Show a message, errors as warnings: Neovim's own error messages would interrupt the user, for example a completion.
local function on_message(_, params)
  local level = params.type <= vim.lsp.protocol.MessageType.Warning and vim.log.levels.WARN or vim.log.levels.INFO
  messages.say(params.message, level)
  return vim.NIL
end

local function on_edit(_, params, context)
  local chats = require('thinklsp.chats')
  local client = assert(vim.lsp.get_client_by_id(context.client_id))
  local stale = edits.stale(params.edit)
  if stale then
    -- Any request about a buffer first sends its pending changes. The server then merges and sends its edit again.
    local about = { textDocument = { uri = vim.uri_from_bufnr(stale) } }
    rpc.call(client, 'request', 'textDocument/codeLens', about, function() end, stale)
    return { applied = false, failureReason = 'the document has changed' }
  end
  -- The virtual lines stay until the same text is in the chat document.
  local writes_answer = edits.writes(params.edit, chats.suffix())
  if writes_answer then
    stream.hide(context.client_id, true)
  else
    changes.remember(params, client)
  end
  local reply = edits.apply(params.edit, client.offset_encoding)
  if writes_answer and reply.applied then
    chats.save(params.edit)
  elseif writes_answer then
    stream.hide(context.client_id, false)
  end
  return reply
end

--- Show chat documents in the chat window, and other documents as usual.
local function on_show(err, params, context, config)
  local chats = require('thinklsp.chats')
  if vim.endswith(params.uri, chats.suffix()) then
    chats.show(vim.uri_to_bufnr(params.uri), params.takeFocus == true)
    return { success = true }
  end
  return vim.lsp.handlers['window/showDocument'](err, params, context, config)
end

M.BY_METHOD = {
  ['$/progress'] = on_progress,
  ['window/showMessage'] = on_message,
  ['window/showDocument'] = on_show,
  ['workspace/applyEdit'] = on_edit,
}

return M
