// A client of the ACP SDK for TypeScript, with one file open in memory. Reads {root, file, broken} as JSON from standard
// input; prints what it saw as one JSON object. The SDK checks the agent's requests and notifications by its zod schemas
// and reports errors on the console; `connect` checks the agent's answers by the same schemas.
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { Readable, Writable } from 'node:stream'
import * as acp from '@agentclientprotocol/sdk'
import * as zod from './node_modules/@agentclientprotocol/sdk/dist/v1/schema/zod.gen.js'

const given = JSON.parse(readFileSync(0, 'utf8'))
const path = `${given.root}/${given.file}`
const { agent: METHODS, client: ASKED } = acp.methods
const ANSWERS = {
  [METHODS.initialize]: zod.zInitializeResponse,
  [METHODS.authenticate]: zod.zAuthenticateResponse,
  [METHODS.session.new]: zod.zNewSessionResponse,
  [METHODS.session.load]: zod.zLoadSessionResponse,
  [METHODS.session.resume]: zod.zResumeSessionResponse,
  [METHODS.session.list]: zod.zListSessionsResponse,
  [METHODS.session.close]: zod.zCloseSessionResponse,
  [METHODS.session.delete]: zod.zDeleteSessionResponse,
  [METHODS.session.prompt]: zod.zPromptResponse,
  [METHODS.session.setMode]: zod.zSetSessionModeResponse,
  [METHODS.session.setConfigOption]: zod.zSetSessionConfigOptionResponse,
}
const invalid = []
console.error = (...words) => invalid.push(words.map((word) => JSON.stringify(word)).join(' '))
process.on('exit', () => process.stderr.write(invalid.join('\n')))

let buffer = given.broken
let updates = []
let questions = []
let answerPermission = () => choose('allow_once')
let beforeRead = async () => {}

function choose(kind) {
  const { options } = questions.at(-1)
  return { outcome: { outcome: 'selected', optionId: options.find((option) => option.kind === kind).optionId } }
}

/** The agent in a process of its own, and the ways to ask it. */
function connect() {
  const child = spawn('thinklsp', ['acp'], { cwd: given.root, stdio: ['pipe', 'pipe', 'inherit'] })
  const ended = new Promise((resolve) => child.on('close', resolve))
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout))
  const connection = acp
    .client({ name: 'typescript-sdk' })
    .onNotification(ASKED.session.update, ({ params }) => updates.push(params.update))
    .onRequest(ASKED.session.requestPermission, ({ params }) => (questions.push(params), answerPermission()))
    .onRequest(ASKED.fs.readTextFile, async ({ params }) => {
      await beforeRead()
      if (params.path !== path) throw acp.RequestError.resourceNotFound(params.path)
      return { content: buffer }
    })
    .onRequest(ASKED.fs.writeTextFile, ({ params }) => {
      if (params.path !== path) throw acp.RequestError.invalidParams({ path: params.path })
      buffer = params.content
      return {}
    })
    .connect(stream)
  const ask = async (method, params) => {
    const answer = await connection.agent.request(method, params)
    const checked = ANSWERS[method].safeParse(answer)
    if (!checked.success) invalid.push(`${method}: ${checked.error}`)
    return answer
  }
  const end = () => (child.stdin.end(), ended)
  return { ask, tell: (method, params) => connection.agent.notify(method, params), end }
}

function open(agent) {
  return agent.ask(METHODS.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: { fs: { readTextFile: true, writeTextFile: true } },
    clientInfo: { name: 'typescript-sdk', version: '1' },
  })
}

/** What came for a prompt: why it ended, and the updates and questions meanwhile. */
async function prompt(agent, sessionId, text, ...blocks) {
  updates = []
  questions = []
  const { stopReason } = await agent.ask(METHODS.session.prompt, {
    sessionId, prompt: [{ type: 'text', text }, ...blocks],
  })
  return { stopReason, ...seen(), questions, buffer }
}

function seen() {
  const text = (kind) => updates.filter((one) => one.sessionUpdate === kind).map((one) => one.content.text).join('')
  return {
    said: text('agent_message_chunk'),
    thought: text('agent_thought_chunk'),
    asked: text('user_message_chunk'),
    calls: updates.filter((one) => one.sessionUpdate === 'tool_call'),
    ends: updates.filter((one) => one.sessionUpdate === 'tool_call_update').map((one) => one.status),
    kinds: [...new Set(updates.map((one) => one.sessionUpdate))],
  }
}

function refused(answer) {
  return answer.then(() => null, (error) => ({ code: error.code, message: error.message }))
}

async function fixes(agent, sessionId) {
  const link = { type: 'resource_link', name: given.file, uri: `file://${path}` }
  buffer = `# not saved\n${given.broken}`
  const accepted = await prompt(agent, sessionId, 'fix the undefined name', link)
  buffer = given.broken
  answerPermission = () => choose('reject_once')
  const rejected = await prompt(agent, sessionId, 'fix the undefined name')
  return { accepted, rejected }
}

/** Cancels a prompt when `reached` calls back; all that is open then stays so until the cancel has been sent. */
async function cancelled(agent, sessionId, text, reached) {
  let milliseconds = 0
  reached(async () => {
    milliseconds = performance.now()
    await agent.tell(METHODS.session.cancel, { sessionId })
  })
  const result = await prompt(agent, sessionId, text)
  return { ...result, milliseconds: performance.now() - milliseconds }
}

async function cancels(agent, sessionId) {
  const permission = await cancelled(agent, sessionId, 'fix the undefined name', (cancel) => {
    answerPermission = async () => (await cancel(), { outcome: { outcome: 'cancelled' } })
  })
  answerPermission = () => choose('allow_once')
  let release = null
  const tool = await cancelled(agent, sessionId, 'fix the undefined name', (cancel) => {
    beforeRead = async () => {
      await cancel()
      await new Promise((resolve) => (release = resolve))
    }
  })
  beforeRead = async () => {}
  release()
  const thinking = await cancelled(agent, sessionId, 'think forever', (cancel) => {
    const watch = setInterval(() => {
      if (updates.some((one) => one.sessionUpdate === 'agent_thought_chunk')) clearInterval(watch), cancel()
    }, 10)
  })
  return { permission, tool, thinking }
}

async function options(agent, sessionId) {
  const set = (configId, value) => agent.ask(METHODS.session.setConfigOption, { sessionId, configId, value })
  await agent.ask(METHODS.session.setMode, { sessionId, modeId: 'ask' })
  const { configOptions } = await set('effort', 'high')
  const wrong = await refused(set('effort', 'tremendous'))
  const answered = await prompt(agent, sessionId, 'fix the undefined name')
  await set('mode', 'edit')
  return { current: Object.fromEntries(configOptions.map((one) => [one.id, one.currentValue])), wrong, answered }
}

const agent = connect()
const initialized = await open(agent)
await agent.ask(METHODS.authenticate, { methodId: initialized.authMethods[0].id })
const session = await agent.ask(METHODS.session.new, { cwd: given.root, mcpServers: [] })
const { sessionId } = session
const greeted = await prompt(agent, sessionId, 'hello')
const fixed = await fixes(agent, sessionId)
const stopped = await cancels(agent, sessionId)
const chosen = await options(agent, sessionId)
const listed = await agent.ask(METHODS.session.list, { cwd: given.root })
await agent.ask(METHODS.session.close, { sessionId })
const closed = await refused(prompt(agent, sessionId, 'hello'))
const where = { sessionId, cwd: given.root, mcpServers: [] }
updates = []
await agent.ask(METHODS.session.resume, where)
const resumed = { replayed: seen(), answered: await prompt(agent, sessionId, 'what did I ask first?') }
const codes = [await agent.end()]

const second = connect()
await open(second)
updates = []
await second.ask(METHODS.session.load, where)
const loaded = { replayed: seen(), answered: await prompt(second, sessionId, 'what did I ask first?') }
const unknown = await refused(second.ask(METHODS.session.load, { ...where, sessionId: 'no-such-session' }))
await second.ask(METHODS.session.delete, { sessionId })
const left = await second.ask(METHODS.session.list, { cwd: given.root })
codes.push(await second.end())
console.log(
  JSON.stringify({
    initialized, session, greeted, fixed, stopped, chosen, listed, closed, resumed, loaded, unknown, left, codes, invalid,
  }),
)
