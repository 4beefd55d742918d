// The page `/install/`: lines to paste for people who want the command line and the Python module. The page has no
// script and no style, and its lines name this installation alone.
import type { PackageNames } from '../../ops/packages.ts';

/** Headers of the page; its policy allows nothing but text and links. */
export const PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'referrer-policy': 'no-referrer',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-cache',
} as const;

/**
 * Writes the page.
 * @param baseUrl - the installation's address, as its callers reach it
 */
export function installPage(baseUrl: string, { commandLine, module, shims }: PackageNames): string {
  const url = escaped(baseUrl);
  const at = (file: string): string => `${url}/install/${escaped(file)}`;
  const link = (file: string): string => `<li><a href="${at(file)}">${escaped(file)}</a></li>`;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Install Longshore</title>
</head>
<body>
<h1>Longshore at ${url}</h1>
<h2>Command line</h2>
<p>Node 20 or newer, on Linux, macOS or Windows. Without an installation:</p>
<pre>npx ${at(commandLine)} --help</pre>
<p>As the command <code>longshore</code>:</p>
<pre>npm install -g ${at(commandLine)}</pre>
<p>Keep this installation's address and your token, for commands and programs:</p>
<pre>longshore login ${url}</pre>
<h2>Python module</h2>
<p>Python 3.8 or newer, for editors, type checkers and programs that call apps:</p>
<pre>pip install ${at(module)}</pre>
<p>With the names of <code>beam</code> and <code>beta9</code>, where neither is installed:</p>
<pre>pip install ${at(module)} ${at(shims)}</pre>
<h2>Files</h2>
<ul>
${[commandLine, module, shims].map(link).join('\n')}
</ul>
</body>
</html>
`;
}

const escaped = (text: string): string => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
