/** The doctor's report and the usage, as pages to read. */

import type { UsageReport, UsageRow } from './protocol';

type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
const TITLES: Record<string, string> = { canRun: 'A turn can run now', reachable: 'The service answers' };

export function doctorPage(report: { [name: string]: Json }): string {
    const { problems, canRun, ...rest } = report;
    const list = Array.isArray(problems) ? problems : [];
    const lines = ['# thinklsp: doctor', '', canRun === true ? 'A turn can run now.' : 'A turn **cannot** run now.', ''];
    lines.push(list.length === 0 ? 'No problems were found.' : '## Problems', '');
    lines.push(...list.map(problem => `- ${escaped(String(problem))}`), '');
    const isGroup = ([, value]: [string, Json]) => value !== null && typeof value === 'object';
    const parts = Object.entries(rest);
    // What decides the next turn comes first; the server's own order goes from the machine to the model.
    const groups = parts.filter(isGroup).reverse();
    const single = Object.fromEntries(parts.filter(part => !isGroup(part)));
    for (const [name, value] of [...groups, ['other', single] as const]) {
        const rows = [...flat(value)].map(([key, text]) => `| ${escaped(key)} | ${escaped(text)} |`);
        lines.push(`## ${titled(name)}`, '', '| | |', '|---|---|', ...rows, '');
    }
    return lines.join('\n');
}

export function usagePage(report: UsageReport): string {
    const head = ['| | input | from cache | output | thinking | cost |', '|---|--:|--:|--:|--:|--:|'];
    const part = (title: string, rows: [string, UsageRow][]) =>
        rows.length === 0 ? [] : [`## ${title}`, '', ...head, ...rows.map(([name, row]) => usageLine(name, row)), ''];
    return [
        '# thinklsp: usage',
        '',
        ...part('Together', [
            ['today, all sessions', report.today],
            ['newest session', report.total],
        ]),
        ...part('By model', report.byModel.map(row => [row.model, row])),
        ...part('By day (UTC)', report.byDay.map(row => [row.day, row])),
        ...part('By turn', report.byTurn.map(row => [row.turnId, row])),
        report.unpriced.length === 0 ? '' : `Costs leave out what has no known price: ${report.unpriced.join(', ')}.`,
    ].join('\n');
}

function usageLine(name: string, row: UsageRow): string {
    const figure = (value: number | null) => (value === null ? '–' : value.toLocaleString('en'));
    const cached = row.cacheShare === null ? '–' : `${Math.round(row.cacheShare * 100)} %`;
    const cost = row.costUsd === null ? '–' : `$${row.costUsd.toFixed(4)}`;
    const cells = [escaped(name), figure(row.inputTokens), cached, figure(row.outputTokens), figure(row.thinkingTokens), cost];
    return `| ${cells.join(' | ')} |`;
}

/** Every value with the path to it. */
function* flat(value: Json, path: string[] = []): Generator<[string, string]> {
    if (Array.isArray(value)) {
        yield [path.join(' '), value.map(String).join(', ') || 'none'];
    } else if (value !== null && typeof value === 'object') {
        for (const [name, part] of Object.entries(value)) {
            yield* flat(part, [...path, titled(name).toLowerCase()]);
        }
    } else {
        yield [path.join(' '), value === null ? '–' : value === true ? 'yes' : value === false ? 'no' : String(value)];
    }
}

function titled(name: string): string {
    const words = name.replace(/[A-Z]/g, capital => ` ${capital.toLowerCase()}`);
    return TITLES[name] ?? words.charAt(0).toUpperCase() + words.slice(1);
}

function escaped(text: string): string {
    return text.replace(/[\\`*_{}[\]<>|]/g, '\\$&').replace(/\s+/g, ' ');
}
