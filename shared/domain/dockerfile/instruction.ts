// Instructions of a Dockerfile as typed values. Everything that names an image, a stage, a file, a label or a variable
// is a value here, and never a piece of somebody's text. Pure.
import type { Word } from './words.ts';

export interface Pair {
  readonly key: string;
  readonly value: Word;
}

/** A command for a shell, or a program with its arguments. */
export type Command =
  | { readonly form: 'shell'; readonly text: string }
  | { readonly form: 'exec'; readonly list: readonly string[] };

export interface From {
  readonly name: 'FROM';
  /** `linux/amd64`; empty: the machine's own. */
  readonly platform: string;
  /** An image, a stage before this one, or `scratch`. */
  readonly image: string;
  /** In small letters; empty: the stage has no name. */
  readonly stage: string;
}

export interface Copy {
  readonly name: 'COPY' | 'ADD';
  /** An image, a stage before this one by its name or its number; empty: the build's files. */
  readonly from: string;
  /** Empty: no flag. */
  readonly chown: Word;
  readonly sources: readonly Word[];
  readonly destination: Word;
}

export interface HealthCheck {
  readonly name: 'HEALTHCHECK';
  readonly options: readonly { readonly name: string; readonly value: string }[];
  /** Absent: `NONE`. */
  readonly command?: Command;
}

export type Instruction =
  | From
  | Copy
  | HealthCheck
  | { readonly name: 'LABEL' | 'ENV'; readonly pairs: readonly Pair[] }
  | { readonly name: 'ARG'; readonly args: readonly { readonly key: string; readonly value?: Word }[] }
  | { readonly name: 'RUN' | 'CMD' | 'ENTRYPOINT'; readonly command: Command }
  | { readonly name: 'SHELL'; readonly list: readonly string[] }
  | { readonly name: 'EXPOSE' | 'VOLUME'; readonly words: readonly Word[] }
  | { readonly name: 'USER' | 'WORKDIR' | 'STOPSIGNAL'; readonly word: Word }
  | { readonly name: 'MAINTAINER'; readonly text: string };

export type InstructionName = Instruction['name'];

/** The shell of commands where neither the image nor the Dockerfile names one. */
export const USUAL_SHELL: readonly string[] = ['/bin/sh', '-c'];

/** Bytes of the longest line that every supported engine reads. */
export const MOST_LINE_BYTES = 60_000;
