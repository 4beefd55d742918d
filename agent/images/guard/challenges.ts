// Challenges of a server that asks for credentials (RFC 9110, 11.6.1): several may be in one header, and a list of
// parameters has the same commas as the list of challenges. Pure.

export interface Challenge {
  /** In lower case. */
  readonly scheme: string;
  /** By names in lower case. Of a repeated name the first one counts. */
  readonly params: ReadonlyMap<string, string>;
}

const TOKEN = /[!#$%&'*+.^_`|~0-9A-Za-z-]+/y;
const TOKEN68 = /[A-Za-z0-9._~+/-]+=*(?=[ \t]*(?:,|$))/y;
const QUOTED = /"((?:[^"\\]|\\[^])*)"/y;
const SPACES = /[ \t]*/y;
const SEPARATORS = /[ \t,]*/y;

/**
 * Reads the values of WWW-Authenticate, joined with commas.
 * @returns the challenges in their order; text that is no challenge ends the list, because nobody knows where the next
 * one begins
 */
export function challengesIn(text: string): readonly Challenge[] {
  let at = 0;
  const take = (what: RegExp): RegExpExecArray | null => {
    what.lastIndex = at;
    const found = what.exec(text);
    if (found !== null) at = what.lastIndex;
    return found;
  };
  /** The value behind `name =`; undefined: no such text is here, and nothing was taken. */
  const value = (): string | undefined => {
    const before = at;
    take(SPACES);
    if (text[at] === '=') {
      at += 1;
      take(SPACES);
      const quoted = take(QUOTED);
      const said = quoted === null ? take(TOKEN)?.[0] : quoted[1]?.replace(/\\([^])/g, '$1');
      if (said !== undefined) return said;
    }
    at = before;
    return undefined;
  };
  const challenges: { readonly scheme: string; readonly params: Map<string, string> }[] = [];
  for (;;) {
    take(SEPARATORS);
    const word = take(TOKEN)?.[0].toLowerCase();
    if (word === undefined) return challenges;
    const said = value();
    const current = challenges.at(-1);
    if (said !== undefined) {
      // A parameter before any scheme.
      if (current === undefined) return challenges;
      if (!current.params.has(word)) current.params.set(word, said);
    } else {
      challenges.push({ scheme: word, params: new Map() });
      if (take(SPACES)?.[0] !== '') take(TOKEN68);
      else if (at < text.length && text[at] !== ',') return challenges.slice(0, -1);
    }
  }
}
