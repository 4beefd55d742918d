// Requests to the supervisor of a container, and the shapes of its answers (docs/supervisor-protocol.md). The
// container may be anybody's program: an answer of another shape is a failure of the container.
import { Type } from 'typebox';
import type { Static, TObject } from 'typebox';

/** The request and the response of a frame have at most this size. */
export const MOST_REQUEST_BYTES = 1024 * 1024 - 64 * 1024;

const SHORT = 4096;
const Word = Type.String({ maxLength: SHORT });
const Count = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const Pid = Type.Integer({ minimum: 1, maximum: 2 ** 31 });
const ExitCode = Type.Union([Type.Integer({ minimum: -64, maximum: 255 }), Type.Null()]);

export const Entry = Type.Object({
  name: Word,
  isDir: Type.Boolean(),
  isLink: Type.Boolean(),
  size: Count,
  mode: Type.Integer({ minimum: 0, maximum: 0o7777 }),
  modTimeMs: Type.Number(),
  permissions: Type.String({ maxLength: 32 }),
  owner: Type.String({ maxLength: 256 }),
  group: Type.String({ maxLength: 256 }),
});
export type Entry = Static<typeof Entry>;

export const Program = Type.Object({
  pid: Pid,
  command: Type.Array(Type.String()),
  cwd: Word,
  env: Type.Array(Type.String()),
  running: Type.Boolean(),
  exitCode: ExitCode,
  signal: Type.Union([Type.String({ maxLength: 32 }), Type.Null()]),
  startedAtMs: Type.Number(),
  terminal: Type.Boolean(),
});
export type Program = Static<typeof Program>;

const Place = Type.Object({ line: Count, column: Count });
export const FoundFile = Type.Object({
  path: Word,
  matches: Type.Array(Type.Object({ range: Type.Object({ start: Place, end: Place }), content: Type.String() }), {
    maxItems: 10_000,
  }),
});
export type FoundFile = Static<typeof FoundFile>;

const Nothing = Type.Object({});
const State = Type.Object({ running: Type.Boolean(), exitCode: ExitCode });
const Found = Type.Object({
  results: Type.Array(FoundFile, { maxItems: 10_000 }),
  more: Type.Boolean(),
});

/** Shapes of the answers that say `ok`, by the type of their request. */
export const ANSWERS = {
  connect: Nothing,
  start: Type.Object({ pid: Pid, input: Count }),
  attach: Type.Object({
    pid: Pid,
    running: Type.Boolean(),
    terminal: Type.Boolean(),
    input: Count,
  }),
  output: Type.Object({ ...State.properties, from: Count, next: Count, lostBytes: Count }),
  wait: State,
  processes: Type.Object({ processes: Type.Array(Program, { maxItems: 1024 }) }),
  kill: Nothing,
  stat: Type.Object({ entry: Entry }),
  list: Type.Object({ entries: Type.Array(Entry, { maxItems: 10_000 }), more: Type.Boolean() }),
  read: Type.Object({ size: Count, mode: Type.Integer({ minimum: 0, maximum: 0o7777 }) }),
  write: Type.Object({ size: Count }),
  pack: Nothing,
  unpack: Nothing,
  remove: Nothing,
  mkdir: Nothing,
  move: Nothing,
  reload: Type.Object({
    state: Type.Union([
      Type.Literal('loaded'),
      Type.Literal('failed'),
      Type.Literal('loading'),
      Type.Literal('unchanged'),
    ]),
    /** The changed file for which the app was loaded anew. */
    path: Type.Optional(Word),
    error: Type.String({ maxLength: SHORT }),
    trace: Type.String({ maxLength: SHORT }),
    durationMs: Count,
  }),
  find: Found,
  replace: Found,
} as const satisfies Record<string, TObject>;

/** The body of a reload: changed files, relative to the app's folder; absent: any may have changed. */
export const ReloadAsked = Type.Object({ paths: Type.Optional(Type.Array(Word, { maxItems: 1000 })) });

export type RequestType = keyof typeof ANSWERS;
export type AnswerOf<T extends RequestType> = Static<(typeof ANSWERS)[T]>;

export interface Terminal {
  readonly rows: number;
  readonly columns: number;
}

/** Fields of a request, by its type. */
export interface Requests {
  readonly connect: { readonly port: number; readonly waitMs: number };
  readonly start: {
    readonly command: readonly string[];
    readonly cwd: string;
    readonly env: Readonly<Record<string, string>>;
    readonly terminal: Terminal | null;
    readonly attach: boolean;
    /** Time without anybody attached after which a terminal's programs get SIGHUP; 0: never. */
    readonly hangUpAfterMs?: number;
    /** Input is counted, and the count told. */
    readonly input?: boolean;
    /** Id of the request: one that is repeated starts nothing, and names the first one's program. */
    readonly id?: string;
  };
  readonly attach: {
    readonly pid: number;
    readonly stdout: number;
    readonly stderr: number;
    /** Takes the counted input over from earlier connections. */
    readonly input?: boolean;
  };
  readonly output: {
    readonly pid: number;
    readonly stream: 'stdout' | 'stderr';
    /** Bytes seen; -1: those that no reading with -1 has given. */
    readonly from: number;
    readonly mostBytes: number;
    /** Ends with a whole character while more may come. */
    readonly text?: boolean;
    /** Id of the request: with -1, one that is repeated gives the same bytes. */
    readonly id?: string;
  };
  readonly wait: { readonly pid: number; readonly timeoutMs: number };
  readonly processes: object;
  readonly kill: { readonly pid: number; readonly signal?: string };
  readonly stat: { readonly path: string };
  readonly list: { readonly path: string };
  readonly read: { readonly path: string; readonly offset: number; readonly length: number };
  readonly write: {
    readonly path: string;
    readonly mode: number;
    readonly append: boolean;
    /** With `append`: where in the file the bytes go; a piece that is repeated is written over itself. */
    readonly offset?: number;
    readonly parents: boolean;
  };
  readonly pack: { readonly path: string };
  readonly unpack: { readonly path: string };
  readonly remove: { readonly path: string; readonly recursive: boolean };
  /** Has a development server load its app anew, where that has loaded one of these files; without names, always. */
  readonly reload: { readonly paths?: readonly string[] };
  readonly mkdir: { readonly path: string; readonly mode: number; readonly parents: boolean };
  readonly move: { readonly path: string; readonly newPath: string };
  readonly find: { readonly path: string; readonly pattern: string; readonly most: number };
  readonly replace: { readonly path: string; readonly pattern: string; readonly newString: string };
}
