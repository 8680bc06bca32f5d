/** The HTML document of the chat view. */

import { randomBytes } from 'node:crypto';
import { Uri, type Webview } from 'vscode';

export function page(webview: Webview, dist: Uri): string {
    const nonce = randomBytes(18).toString('base64url');
    const at = (name: string): string => webview.asWebviewUri(Uri.joinPath(dist, name)).toString();
    const policy = `default-src 'none'; script-src 'nonce-${nonce}'; style-src ${webview.cspSource}; img-src data:`;
    return `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>thinklsp</title>
<link rel="stylesheet" href="${at('webview.css')}">
</head>
<body><script nonce="${nonce}" src="${at('webview.js')}"></script></body>
</html>`;
}
