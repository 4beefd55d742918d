/**
 * Errors of pulls, as tenants may read them. The engine repeats in them what a server said, and that server may be any
 * page that the engine reaches in the host's network. Pure. Must stay true: of a server's words, codes of registries,
 * statuses and the usual sentences of registries alone are kept.
 */

const LEFT_OUT = "the server's words are left out";
const CODE =
  '(?:unauthorized|authentication required|denied|toomanyrequests|too many requests|unavailable|unsupported|unknown|unknown error|manifest unverified|(?:[a-z]+ ){1,3}(?:unknown|invalid))';
/** The class that Docker 29 itself puts before a status that it did not expect. It is no code of a registry. */
const NO_CLASS = /^unknown: (?=failed to resolve reference ")/;
const USUAL =
  '(?:authentication required|access to the requested resource is not authorized|requested access to the resource is denied|incorrect username or password|manifest unknown|repository name not known to registry|You have reached your (?:unauthenticated )?pull rate limit|The operation is unsupported)';

/** Ends of what the engine itself says; a server's words follow. */
const ENDS: readonly RegExp[] = [
  /(?:error parsing HTTP|unexpected (?:HTTP )?status(?: code)?(?: \[[^\]]*\])?(?: from \w+ request to \S+?)?:?) \d{3}\b(?: response body)?/,
  /malformed (?:HTTP(?: [a-z]+){1,3}|MIME header(?: [a-z]+)*)/,
  /invalid character/,
  /certificate is valid for/,
  /signed by unknown authority/,
  new RegExp(`error from registry(?=: (?!${CODE}: ))`),
  new RegExp(`(?:^|: |\\n)${CODE}(?=: (?!${CODE}: ))`),
];
const FOLLOWS = new RegExp(`^: (${USUAL})`);
const MOST = 1_000;

/** An error of the engine about a registry, without what a server said. */
export function withoutServersWords(said: string): string {
  const text = said.replace(NO_CLASS, '');
  const found = ENDS.map((pattern) => pattern.exec(text)).filter((one) => one !== null);
  const [first] = found.toSorted((one, other) => one.index - other.index);
  if (first === undefined) return plain(text);
  const end = first.index + first[0].length;
  const own = plain(text.slice(0, end));
  const usual = FOLLOWS.exec(text.slice(end))?.[1];
  if (usual !== undefined) return `${own}: ${usual}`;
  const rest = text.slice(end).trim();
  if (rest === '') return own;
  // The name of the class decides how the pull goes on (`classifyPull`).
  return first[0] === 'invalid character' ? `${own} '…' in the answer: ${LEFT_OUT}` : `${own}: ${LEFT_OUT}`;
}

/** Addresses without their queries, which a redirect chose and which may hold signatures; no other quoted text. */
const plain = (text: string): string =>
  text
    .replaceAll(/(https?:\/\/[^\s"?]*)\?[^\s"]*/g, '$1')
    .replaceAll(/"((?:[^"\\]|\\.)*)"/g, (all, quoted: string) =>
      /^(?:https?:\/\/)?[\w.:/@[\]+-]*$/.test(quoted) ? all : '"…"',
    )
    .slice(0, MOST);
