// openapi.json as a page that people read: every operation with its fields, its answer, and a call to try. Pure text
// made from the document; no script, and nothing loaded from elsewhere.

interface Schema {
  readonly type?: string;
  readonly format?: string;
  readonly description?: string;
  readonly minimum?: number;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly default?: unknown;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly allOf?: readonly Schema[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly $ref?: string;
}

/** Parts of the document that routes refer to by name. */
interface Components {
  readonly schemas: Readonly<Record<string, Schema>>;
  readonly responses: Readonly<Record<string, Content>>;
}

interface Described {
  readonly operationId?: string;
  readonly summary?: string;
  readonly tags?: readonly string[];
  readonly security?: readonly unknown[];
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly schema: Schema }[];
  readonly requestBody?: Content;
  readonly responses: Readonly<Record<string, Content>>;
}

interface Content {
  readonly description?: string;
  readonly content?: Readonly<Record<string, { readonly schema: Schema }>>;
  readonly $ref?: string;
}

interface Entry extends Described {
  readonly method: string;
  readonly path: string;
  readonly id: string;
}

/** Tags in the order of the page; others follow. */
const TITLES: Readonly<Record<string, string>> = {
  invoke: 'Invoking deployments',
  gateway: 'Gateway',
  workspace: 'Workspace',
  objects: 'Objects',
  installation: 'Installation',
  operations: 'Operating it',
  pods: 'Pods and sandboxes',
};

interface Info {
  readonly title: string;
  readonly version: string;
  readonly description: string;
}
type Groups = ReturnType<typeof groupsOf>;

/**
 * Makes the page, half a megabyte that anybody may ask for without a token. For that
 * reason references are resolved once, and the page of the last base URL is kept.
 * @param document - as openApiDocument makes it
 * @returns a function that makes the page; its `baseUrl` is the installation's, for the calls to try
 */
export function apiPages(document: Readonly<Record<string, unknown>>): (baseUrl: string) => string {
  const paths = document['paths'] as Readonly<Record<string, Readonly<Record<string, Described>>>>;
  const groups = groupsOf(inFull(paths, document['components'] as Components));
  const info = document['info'] as Info;
  let last: { readonly baseUrl: string; readonly page: string } | undefined;
  return (baseUrl) => {
    if (last?.baseUrl !== baseUrl) last = { baseUrl, page: pageOf(info, groups, baseUrl) };
    return last.page;
  };
}

function pageOf(info: Info, groups: Groups, baseUrl: string): string {
  const menu = groups.map(
    ([title, entries]) =>
      `<h2>${escape(title)}</h2><ul>${entries.map((one) => `<li><a href="#${one.id}">${escape(nameOf(one))}</a></li>`).join('')}</ul>`,
  );
  const body = groups.map(
    ([title, entries]) => `<h2>${escape(title)}</h2>${entries.map((one) => section(one, baseUrl)).join('')}`,
  );
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(info.title)} API</title><style>${STYLE}</style></head>
<body><nav><h1><a href="#top">${escape(info.title)} API</a></h1>${menu.join('')}</nav>
<main id="top"><header><h1>${escape(info.title)} ${escape(info.version)}</h1><p>${escape(info.description)}
Every call carries <code>Authorization: Bearer TOKEN</code> unless it says otherwise. The same for machines: <a href="/openapi.json">openapi.json</a>.</p>
<p>The gateway answers 200 with <code>ok</code> false and a text where it refuses, and another status with <code>code</code> and <code>message</code> where it could not process a call: 400, 401, 429, 503 or 504.
What codes mean, and what to do, stands in <code>docs/errors.md</code>.
Fields may be spelled <code>camelCase</code> or <code>snake_case</code>; what is absent has its default; what is unknown is ignored.</p></header>
${body.join('')}</main></body></html>
`;
}

/** A part with every reference replaced by its target; no part of the document refers to itself. */
function inFull<Part>(part: Part, components: Components): Part {
  const byName = (_key: string, value: unknown): unknown => {
    const [, kind, name = ''] = /^#\/components\/(schemas|responses)\/(\w+)$/.exec(refOf(value) ?? '') ?? [];
    return kind === undefined ? value : inFull(components[kind as keyof Components][name], components);
  };
  return JSON.parse(JSON.stringify(part, byName)) as Part;
}

const refOf = (value: unknown): string | undefined =>
  typeof value === 'object' && value !== null ? (value as { readonly $ref?: string }).$ref : undefined;

function groupsOf(
  paths: Readonly<Record<string, Readonly<Record<string, Described>>>>,
): readonly (readonly [string, readonly Entry[]])[] {
  const byTag = new Map<string, Entry[]>(Object.keys(TITLES).map((tag) => [tag, []]));
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, described] of Object.entries(methods)) {
      const tag = described.tags?.[0] ?? '';
      const id = described.operationId ?? `${method}${path}`.replaceAll(/[^a-zA-Z0-9]+/g, '-');
      const entry = { ...described, method: method.toUpperCase(), path, id };
      byTag.set(tag, [...(byTag.get(tag) ?? []), entry]);
    }
  }
  return [...byTag].filter(([, entries]) => entries.length > 0).map(([tag, entries]) => [TITLES[tag] ?? tag, entries]);
}

const nameOf = (entry: Entry): string => entry.operationId ?? `${entry.method} ${entry.path.replace('/api/v1', '')}`;

function section(entry: Entry, baseUrl: string): string {
  const body = schemaOf(entry.requestBody);
  const done = Object.keys(entry.responses).find((status) => status.startsWith('2')) ?? '200';
  const answer = schemaOf(entry.responses[done]);
  const refusals = Object.entries(entry.responses)
    // Refusals of gateway operations are the same everywhere, and not listed.
    .filter(([status]) => status !== done && entry.operationId === undefined)
    .map(
      ([status, { description = '' }]) =>
        `<tr><td>${escape(status)}</td><td colspan="2" class="text">${escape(description)}</td></tr>`,
    );
  const parameters = (entry.parameters ?? []).map(({ name, in: where, schema }) => row(name, schema, where));
  const isOpen = entry.security !== undefined;
  return `<section id="${entry.id}">${entry.operationId === undefined ? '' : `<h3>${escape(entry.operationId)}</h3>`}
<p class="route"><b class="${entry.method}">${entry.method}</b> <code>${escape(entry.path)}</code></p>
${entry.summary === undefined ? '' : `<p>${escape(entry.summary)}.${isOpen ? ' No token needed.' : ''}</p>`}
${table('Parameters', parameters)}${table('Body', rowsOf(body))}${table(done === '200' ? 'Answer' : `Answer (${done})`, answerRows(answer))}${table('Refused with', refusals)}
<pre>${escape(callOf(entry, body, baseUrl, isOpen))}</pre></section>`;
}

const schemaOf = (content: Content | undefined): Schema | undefined => content?.content?.['application/json']?.schema;

const table = (title: string, rows: readonly string[]): string =>
  rows.length === 0 ? '' : `<h4>${title}</h4><table>${rows.join('')}</table>`;

const row = (name: string, schema: Schema, where = ''): string =>
  `<tr><td><code>${escape(name)}</code></td><td>${escape(typeOf(schema))}${where === 'path' ? ', in the path' : ''}</td><td>${escape(describe(schema))}</td></tr>`;

/** Rows of a record's fields; fields of inner records are listed below their own, `volumes[].mountPath`. */
function rowsOf(schema: Schema | undefined, prefix = ''): readonly string[] {
  return Object.entries(schema?.properties ?? {}).flatMap(([name, field]) => {
    const inner = present(field);
    const isList = inner.type === 'array';
    const record = isList ? present(inner.items ?? {}) : inner;
    const path = `${prefix}${name}`;
    return [row(path, field), ...rowsOf(record, `${path}${isList ? '[]' : ''}.`)];
  });
}

/** Rows of an answer; a list has the fields of its records. */
const answerRows = (schema: Schema | undefined): readonly string[] =>
  schema?.type === 'array' ? rowsOf(schema.items, '[].') : rowsOf(schema === undefined ? schema : present(schema));

/** The schema of a value that is not null, with the fields of all its parts. */
const present = (schema: Schema): Schema => together(schema.anyOf?.find(({ type }) => type !== 'null') ?? schema);

function together(schema: Schema): Schema {
  const [first, ...others] = [...(schema.allOf ?? []).map(together), schema];
  return others.reduce<Schema>(
    (all, part) => ({ ...all, ...part, properties: { ...all.properties, ...part.properties } }),
    first ?? schema,
  );
}

function typeOf(schema: Schema): string {
  const inner = present(schema);
  if (inner.enum !== undefined) return inner.enum.map((value) => JSON.stringify(value)).join(' | ');
  if (inner.const !== undefined) return JSON.stringify(inner.const);
  if (inner.type === 'array') return `list of ${typeOf(inner.items ?? {})}`;
  const name = inner.format === 'int64' ? 'int64' : inner.type === 'object' ? 'record' : (inner.type ?? 'any');
  return schema.anyOf?.some(({ type }) => type === 'null') === true ? `${name} or null` : name;
}

function describe(schema: Schema): string {
  const inner = present(schema);
  const fallback = inner.default === undefined ? '' : `default ${JSON.stringify(inner.default)}`;
  return [schema.description ?? inner.description ?? inner.items?.description ?? '', fallback]
    .filter((text) => text !== '')
    .join('; ');
}

function callOf(entry: Entry, body: Schema | undefined, baseUrl: string, isOpen: boolean): string {
  const path = entry.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase());
  const method = entry.method === 'GET' ? '' : ` -X ${entry.method}`;
  const token = isOpen ? '' : ' \\\n  -H "Authorization: Bearer $LONGSHORE_TOKEN"';
  const first = Object.keys(body?.properties ?? {})[0];
  const input = entry.tags?.[0] === 'invoke' && !path.endsWith('/warmup') ? '{"name": "you"}' : undefined;
  const example = input ?? (first === undefined ? undefined : `{"${first}": …}`);
  const data = example === undefined ? '' : ` \\\n  -d '${example}'`;
  return `curl${method} ${baseUrl}${path}${token}${data}`;
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
};
const escape = (text: string): string => text.replaceAll(/[&<>"']/g, (character) => ENTITIES[character] ?? '');

const STYLE = `
:root{color-scheme:light dark;--line:#8884;--soft:#8881;--link:#0b62c4}
@media(prefers-color-scheme:dark){:root{--link:#7ab8ff}}
*{box-sizing:border-box}body{margin:0;font:15px/1.5 system-ui,sans-serif;display:flex}
a{color:var(--link);text-decoration:none}a:hover{text-decoration:underline}
nav{position:sticky;top:0;height:100vh;overflow:auto;width:17rem;flex:none;padding:1rem;border-right:1px solid var(--line);font-size:13px}
nav h1{font-size:1.1rem;margin:0 0 1rem}nav h2{font-size:.8rem;text-transform:uppercase;letter-spacing:.05em;margin:1rem 0 .25rem}
nav ul{list-style:none;margin:0;padding:0}nav li{overflow-wrap:anywhere}
main{flex:1;min-width:0;max-width:60rem;padding:1rem 2rem 6rem}
section{border-top:1px solid var(--line);padding:.5rem 0 1rem;scroll-margin-top:1rem}h3{margin:.5rem 0}h4{margin:1rem 0 .25rem}
.route b{display:inline-block;min-width:4.5em;text-align:center;border-radius:4px;padding:0 .5em;color:#fff;background:#57606a;font-size:12px}
.route .GET{background:#0a6ebd}.route .POST{background:#1a7f37}.route .DELETE{background:#cf222e}.route .PUT,.route .PATCH{background:#9a6700}
table{border-collapse:collapse;width:100%;font-size:13px}td{border-bottom:1px solid var(--line);padding:.2rem .6rem .2rem 0;vertical-align:top}
td:first-child{white-space:nowrap}td:nth-child(2){white-space:nowrap;opacity:.75}
pre{background:var(--soft);border-radius:6px;padding:.75rem;overflow:auto;font-size:13px}
@media(max-width:50rem){body{display:block}nav{position:static;width:auto;height:auto;max-height:40vh}main{padding:1rem}}
`;
