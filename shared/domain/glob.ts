/**
 * Wildcards of a name, as shells have them: `*` is any text, `?` any character, `[a-c]` one of these, `[!a-c]` none of
 * these. Pure. The time is bounded by the lengths of the pattern and of the name multiplied.
 */

type Token = { readonly kind: 'any' } | { readonly kind: 'one'; readonly takes: (letter: string) => boolean };

export const hasWildcards = (text: string): boolean => /[*?[]/.test(text);

/** Compiles a pattern of one name. A bracket that is not closed stands for itself. */
export function compileGlob(pattern: string): (name: string) => boolean {
  const tokens = tokensOf(Array.from(pattern));
  return (name) => matches(tokens, Array.from(name));
}

function tokensOf(letters: readonly string[]): readonly Token[] {
  const tokens: Token[] = [];
  let at = 0;
  while (at < letters.length) {
    const letter = letters[at] ?? '';
    const close = letter === '[' ? closing(letters, at) : -1;
    if (close > 0) {
      tokens.push(oneOf(letters.slice(at + 1, close)));
      at = close;
    } else if (letter === '*') tokens.push({ kind: 'any' });
    else tokens.push({ kind: 'one', takes: letter === '?' ? () => true : (other) => other === letter });
    at += 1;
  }
  return tokens;
}

/** Place of the bracket that closes a set; -1: none. A bracket that is the set's first member does not close it. */
function closing(letters: readonly string[], open: number): number {
  const first = letters[open + 1] === '!' ? open + 2 : open + 1;
  return letters.indexOf(']', first + 1);
}

function oneOf(set: readonly string[]): Token {
  const isNot = set[0] === '!';
  const members = isNot ? set.slice(1) : set;
  const ranges: (readonly [string, string])[] = [];
  for (let at = 0; at < members.length; at++) {
    const from = members[at] ?? '';
    const to = members[at + 2];
    if (members[at + 1] === '-' && to !== undefined) {
      ranges.push([from, to]);
      at += 2;
    } else ranges.push([from, from]);
  }
  return { kind: 'one', takes: (letter) => ranges.some(([from, to]) => from <= letter && letter <= to) !== isNot };
}

function matches(tokens: readonly Token[], letters: readonly string[]): boolean {
  let [token, letter] = [0, 0];
  // The last `any`, and the letters that it has taken so far: a mismatch lets it take one more.
  let [anyAt, anyTo] = [-1, 0];
  while (letter < letters.length) {
    const current = tokens[token];
    if (current?.kind === 'any') {
      [anyAt, anyTo] = [token, letter];
      token += 1;
    } else if (current?.takes(letters[letter] ?? '') === true) {
      token += 1;
      letter += 1;
    } else if (anyAt >= 0) {
      anyTo += 1;
      [token, letter] = [anyAt + 1, anyTo];
    } else return false;
  }
  return tokens.slice(token).every(({ kind }) => kind === 'any');
}
