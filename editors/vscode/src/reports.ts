/** Formats the doctor's report, the usage and the MCP servers as Markdown pages. */

import type { DoctorModel, DoctorReport, McpReport, McpServer, UsageReport, UsageRow } from './protocol';

type Row = [name: string, value: string, why?: string];

export function doctorPage(report: DoctorReport): string {
    const { canRun, problems, model, settings } = report;
    const isOffline = model?.provider === 'simulator';
    const state = !canRun
        ? '✗ thinklsp cannot run a turn until this is fixed.'
        : isOffline
          ? '✓ thinklsp is ready. It is **offline**: the simulator gives scripted answers, and no model is called.'
          : '✓ thinklsp is ready to run a turn.';
    const sources = Object.entries(settings?.sources ?? {});
    return [
        '# thinklsp: doctor',
        '',
        state,
        '',
        ...problems.map(problem => `- ${escaped(problem)}`),
        '',
        ...part('Next turn', model === null ? [['Model', 'none', noModel(report)]] : modelRows(model, report.reachable)),
        ...part('Changed settings', sources.map(([key, source]) => [key, text(valueOf(settings?.values, key)), source])),
        ...part('This machine', machineRows(report)),
    ].join('\n');
}

function noModel({ settings, providers }: DoctorReport): string {
    return settings === null
        ? 'the settings are invalid'
        : providers.keyed.length === 0
          ? 'no provider has a key'
          : `providers with a key or a base URL: ${providers.keyed.join(', ')}`;
}

function modelRows(model: DoctorModel, reachable: boolean | null): Row[] {
    if (model.provider === 'simulator') {
        return [['Provider', 'simulator', model.providerSource]];
    }
    const { price } = model.catalogue;
    const answer = reachable === null ? 'not tested' : reachable ? 'it answers' : 'it does not answer';
    return [
        ['Provider', model.provider, model.providerSource],
        ['Address', model.baseUrl ?? 'none', answer],
        ['Key', model.keySource === 'none needed' ? 'none' : 'found', model.keySource],
        ['Model', model.id || "the server's first model", model.known ? model.idSource : `${model.idSource}, not in the catalogue`],
        ['Thinking', model.thinking + (model.budgetTokens ? `, ${count(model.budgetTokens)} tokens` : ''), model.thinkingSource],
        ['Effort', model.effort, model.effortSource],
        ['Output', model.maxTokens === null ? 'as much as the server allows' : `at most ${count(model.maxTokens)} tokens`],
        ['Context window', model.contextWindow === null ? 'unknown' : `${count(model.contextWindow)} tokens`],
        ['Price', price === null ? 'unknown' : `$${price.input} input, $${price.output} output`, price ? 'per million tokens' : ''],
        ...model.notices.map((notice): Row => ['Note', notice]),
    ];
}

function machineRows({ version, system, tools, commands, permissions, settings, store }: DoctorReport): Row[] {
    const folders = permissions?.trustedFolders?.length ?? 0;
    const reason = commands?.problem ?? 'set `commands.enabled` in your config.toml to let the model run tests';
    return [
        ['Server', `thinklsp ${version}`, `Python ${system.python} on ${system.platform}`],
        ['Search', tools.ripgrep ? 'ripgrep' : 'none', tools.ripgrep ? '' : 'ripgrep was not found'],
        ['Commands', commands?.offered ? 'on' : 'off', commands?.offered ? 'in the sandbox, on a copy' : reason],
        ['Trusted instructions', folders === 0 ? 'none' : folders === 1 ? 'in 1 folder' : `in ${folders} folders`],
        ['Your file', settings?.file ?? 'not read'],
        ['Sessions', store.databaseExists ? count(store.sessions) : 'none yet', store.path ?? 'in memory only'],
        ['Log', store.log],
    ];
}

/** Returns a section with a line for each row, or nothing without rows. */
function part(title: string, rows: Row[]): string[] {
    const lines = rows.map(([name, value, why]) => `- ${escaped(name)}: **${escaped(value)}**${why ? ` – ${escaped(why)}` : ''}`);
    return lines.length === 0 ? [] : [`## ${title}`, '', ...lines, ''];
}

function valueOf(values: unknown, key: string): unknown {
    return key.split('.').reduce((value: unknown, name) => (value as Record<string, unknown> | undefined)?.[name], values);
}

function text(value: unknown): string {
    return typeof value === 'string' ? value : (JSON.stringify(value) ?? '–');
}

function count(number: number): string {
    return number.toLocaleString('en');
}

export function mcpPage({ servers, disabled, problems }: McpReport): string {
    const none = servers.length + disabled.length === 0 ? ['There are no MCP servers.', ''] : [];
    return [
        '# thinklsp: MCP servers',
        '',
        ...none,
        ...problems.map(problem => `- ${escaped(problem)}`),
        '',
        ...servers.flatMap(server => part(escaped(server.name), mcpRows(server))),
        ...part('Off', disabled.map(name => [name, '`enabled` is false'])),
    ].join('\n');
}

function mcpRows(server: McpServer): Row[] {
    const consent = { own: '', approved: 'approved', new: 'not approved', changed: 'changed since you approved it' };
    const rows: Row[] = [
        ['State', server.state, [server.place, consent[server.consent]].filter(Boolean).join(', ')],
        ...server.description.split('\n').map((line): Row => [line.split(': ', 1)[0] ?? '', line.slice(line.indexOf(': ') + 2)]),
        ['Hash', server.fingerprint],
    ];
    if (server.startSeconds !== null) {
        rows.push(['Start', `${server.startSeconds.toFixed(2)} s`, `protocol ${server.era ?? 'unknown'}`]);
    }
    if (server.lastError !== null) {
        rows.push(['Last error', server.lastError]);
    }
    const tools = server.tools.map((tool): Row => {
        const hash = tool.hash?.slice(0, 16) ?? '';
        return ['Tool', tool.modelName ?? `${tool.name} (left out)`, [tool.pin, hash].filter(Boolean).join(', ')];
    });
    return [...rows, ...tools];
}

export function usagePage(report: UsageReport): string {
    const head = ['| | input | from cache | output | thinking | cost |', '|---|--:|--:|--:|--:|--:|'];
    const table = (title: string, rows: [string, UsageRow][]) =>
        rows.length === 0 ? [] : [`## ${title}`, '', ...head, ...rows.map(([name, row]) => usageLine(name, row)), ''];
    return [
        '# thinklsp: usage',
        '',
        ...table('Together', [
            ['today, all sessions', report.today],
            ['newest session', report.total],
        ]),
        ...table('By model', report.byModel.map(row => [row.model, row])),
        ...table('By day (UTC)', report.byDay.map(row => [row.day, row])),
        ...table('By turn', report.byTurn.map(row => [row.turnId, row])),
        report.unpriced.length === 0 ? '' : `Not included in the costs, because the price is not known: ${report.unpriced.join(', ')}.`,
    ].join('\n');
}

function usageLine(name: string, row: UsageRow): string {
    const figure = (value: number | null) => (value === null ? '–' : count(value));
    const cached = row.cacheShare === null ? '–' : `${Math.round(row.cacheShare * 100)} %`;
    const cost = row.costUsd ? `$${row.costUsd.toFixed(4)}` : '–';
    const cells = [escaped(name), figure(row.inputTokens), cached, figure(row.outputTokens), figure(row.thinkingTokens), cost];
    return `| ${cells.join(' | ')} |`;
}

function escaped(text: string): string {
    return text.replace(/[\\`*_{}[\]<>|]/g, '\\$&').replace(/\s+/g, ' ');
}
