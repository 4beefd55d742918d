// Texts of others: names, log lines, results and errors are hostile. Characters that a reader cannot see, or that turn
// the direction of a line, are shown as codes, and long texts are cut. Pure.

/** Characters of a line that are shown at once. */
const MOST_OF_LINE = 4 * 1024;
/** Characters of a value that are shown at once. */
export const MOST_OF_VALUE = 256 * 1024;

/** Escape sequences of terminals; colours are left out. */
// oxlint-disable-next-line no-control-regex
const ANSI = /\u001b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-_])/g;
// oxlint-disable-next-line no-control-regex
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A text as it may be shown. */
export const shownText = (text: string): string =>
  text
    .replace(ANSI, '')
    .replace(/\r\n/g, '\n')
    .replace(UNSEEN, (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** A line, cut. */
export const shownLine = (text: string): string => {
  const shown = shownText(text.slice(0, MOST_OF_LINE));
  return text.length <= MOST_OF_LINE ? shown : `${shown} … ${text.length - MOST_OF_LINE} characters more`;
};

/** A sentence without its begin, `NAME v1 is STATE: `, where name and state stand beside it already. */
export function withoutSubject(sentence: string, name: string, state: string): string {
  const verb = ` is ${state}: `;
  const at = sentence.indexOf(verb, name.length);
  if (name === '' || at < 0 || !sentence.startsWith(`${name} `)) return sentence;
  const rest = sentence.slice(at + verb.length);
  return `${rest.charAt(0).toUpperCase()}${rest.slice(1)}`;
}

/** The commands of a sentence. */
export const commandsIn = (text: string): readonly string[] => text.split('`').filter((_, at) => at % 2 === 1);
