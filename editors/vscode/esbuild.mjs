// Builds dist/: the extension for VS Code's Node.js and the web view for its browser. `--watch` rebuilds on changes.
import * as esbuild from 'esbuild';

const watch = process.argv.includes('--watch');
const shared = { bundle: true, minify: !watch, sourcemap: watch, logLevel: 'warning', legalComments: 'none' };
const builds = [
    {
        ...shared,
        entryPoints: ['src/extension.ts', 'src/client.ts'],
        outdir: 'dist',
        platform: 'node',
        format: 'cjs',
        target: 'node20',
        // The client is loaded only when it is needed.
        external: ['vscode', './client.js'],
        supported: { 'dynamic-import': false },
    },
    {
        ...shared,
        entryPoints: ['webview/main.ts'],
        outfile: 'dist/webview.js',
        platform: 'browser',
        format: 'iife',
        target: 'es2022',
    },
];
for (const build of builds) {
    if (watch) {
        await (await esbuild.context(build)).watch();
    } else {
        await esbuild.build(build);
    }
}
