// A language client in the way of editors that run in a browser: vscode-ws-jsonrpc over a WebSocket, the transport of
// monaco-languageclient. Reads {port, token, origin, root, file, text} as JSON from standard input; prints what it saw as
// one JSON object.
import { readFileSync } from 'node:fs'
import { ConsoleLogger, createWebSocketConnection, toSocket } from 'vscode-ws-jsonrpc'
import {
  ApplyWorkspaceEditRequest, CancellationTokenSource, CodeActionRequest, DidChangeTextDocumentNotification,
  DidOpenTextDocumentNotification, ExecuteCommandRequest, ExitNotification, InitializedNotification, InitializeRequest,
  ShutdownRequest, TextDocument, WorkDoneProgress, WorkDoneProgressCreateRequest,
} from 'vscode-languageserver-protocol'
import { WebSocket } from 'ws'

const given = JSON.parse(readFileSync(0, 'utf8'))
const uri = `file://${given.root}/${given.file}`
let version = 1
let text = given.text

function reach(token, origin) {
  const protocols = token === null ? ['lsp'] : ['lsp', `token.${token}`]
  return new WebSocket(`ws://127.0.0.1:${given.port}/`, protocols, { origin })
}

/** The HTTP status with which a connection is refused, 101 if it is not. */
function statusOf(socket) {
  return new Promise((resolve) => {
    socket.on('error', () => {})
    socket.on('unexpected-response', (_request, response) => resolve(response.statusCode))
    socket.on('open', () => (socket.close(), resolve(101)))
  })
}

function apply(edit) {
  const changes = edit.documentChanges.filter((change) => change.textDocument.uri === uri)
  const document = TextDocument.create(uri, 'python', version, text)
  text = TextDocument.applyEdits(document, changes.flatMap((change) => change.edits))
  version += 1
}

async function connected() {
  const socket = reach(given.token, given.origin)
  await new Promise((resolve, reject) => (socket.on('open', resolve), socket.on('error', reject)))
  const closed = new Promise((resolve) => socket.on('close', resolve))
  const connection = createWebSocketConnection(toSocket(socket), new ConsoleLogger())
  connection.onRequest(WorkDoneProgressCreateRequest.type, () => null)
  connection.onRequest(ApplyWorkspaceEditRequest.type, async ({ edit }) => {
    apply(edit)
    const change = { textDocument: { uri, version }, contentChanges: [{ text }] }
    await connection.sendNotification(DidChangeTextDocumentNotification.type, change)
    return { applied: true }
  })
  connection.listen()
  return { connection, closed, protocol: socket.protocol }
}

async function initialize(connection) {
  await connection.sendRequest(InitializeRequest.type, {
    processId: null,
    rootUri: `file://${given.root}`,
    workspaceFolders: [{ uri: `file://${given.root}`, name: 'project' }],
    capabilities: {
      textDocument: { codeAction: { codeActionLiteralSupport: { codeActionKind: { valueSet: ['quickfix', 'refactor'] } } } },
      window: { workDoneProgress: true },
      workspace: { applyEdit: true, workspaceEdit: { documentChanges: true } },
    },
  })
  await connection.sendNotification(InitializedNotification.type, {})
  const textDocument = { uri, languageId: 'python', version, text }
  await connection.sendNotification(DidOpenTextDocumentNotification.type, { textDocument })
}

async function fix(connection) {
  const range = { start: { line: 1, character: 27 }, end: { line: 1, character: 32 } }
  const context = { diagnostics: [{ range, message: "undefined name 'value'", source: 'lint' }] }
  const offered = await connection.sendRequest(CodeActionRequest.type, { textDocument: { uri }, range, context })
  const { title, command } = offered.find((action) => action.title.startsWith('thinklsp: fix'))
  const phases = []
  const listener = connection.onProgress(WorkDoneProgress.type, 'fix', (value) => phases.push(value.kind))
  const asked = { command: command.command, arguments: command.arguments, workDoneToken: 'fix' }
  const result = await connection.sendRequest(ExecuteCommandRequest.type, asked)
  listener.dispose()
  return { title, phases, applied: result.edits.applied, answer: result.text, text }
}

async function cancel(connection) {
  const source = new CancellationTokenSource()
  const seen = new Promise((resolve) => {
    connection.onProgress(WorkDoneProgress.type, 'long', (value) => value.kind === 'report' && resolve())
  })
  const asked = { command: 'thinklsp.chat', arguments: [{ prompt: 'think forever' }], workDoneToken: 'long' }
  const answer = connection.sendRequest(ExecuteCommandRequest.type, asked, source.token)
  const refused = answer.then((result) => ({ result }), (error) => ({ code: error.code }))
  await seen
  const began = performance.now()
  source.cancel()
  return { ...(await refused), milliseconds: performance.now() - began }
}

const refused = {
  'a wrong token': await statusOf(reach('wrong'.repeat(8), given.origin)),
  'no token': await statusOf(reach(null, given.origin)),
  'a wrong origin': await statusOf(reach(given.token, 'https://elsewhere.example.com')),
}
const { connection, closed, protocol } = await connected()
await initialize(connection)
const fixed = await fix(connection)
const cancelled = await cancel(connection)
const shutdown = await connection.sendRequest(ShutdownRequest.type)
await connection.sendNotification(ExitNotification.type)
console.log(JSON.stringify({ refused, protocol, fixed, cancelled, shutdown, closed: await closed }))
