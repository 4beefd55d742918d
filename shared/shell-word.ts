/** Words that a shell takes as they are. */
const PLAIN = /^[\w@%+=:,./-]+$/;

/** A text as one word of a shell's command line, in quotes where the shell would read it otherwise. */
export const shellWord = (text: string): string => (PLAIN.test(text) ? text : shellQuoted(text));

/** A text in single quotes, which a shell takes as it is. */
export const shellQuoted = (text: string): string => `'${text.replaceAll("'", String.raw`'\''`)}'`;
