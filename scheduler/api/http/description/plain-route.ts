// A route as openapi.json describes it that is neither an operation of the gateway nor of the workspace REST API.
import { Type } from 'typebox';
import type { TSchema } from 'typebox';

/** Descriptions of refusals by status; the body is the route's own. */
export type RefusalTexts = Readonly<Record<number, string>>;

export interface PlainRoute {
  readonly http: string;
  readonly summary: string;
  readonly tag: 'invoke' | 'models' | 'objects' | 'operations' | 'pods';
  readonly open?: boolean;
  readonly query?: readonly string[];
  /** Headers by name, with their descriptions. */
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: Content | readonly Content[];
  /** Bodies of the answer; absent: an empty answer. */
  readonly answer?: Content | readonly Content[];
  /** Error codes, as REST's problems. */
  readonly errors?: readonly string[];
  /** Refusals of calls, by status. */
  readonly refusals?: RefusalTexts;
  /** Whose body refusals have; absent: that of invoking. */
  readonly dialect?: 'openai';
  /** A WebSocket: its good answer is 101. */
  readonly upgrades?: boolean;
  /** Answers with another body, by status. */
  readonly others?: Readonly<Record<number, { readonly description: string; readonly content?: Content }>>;
}

export interface Content {
  readonly type: string;
  readonly schema: TSchema;
}

export const json = (schema: TSchema): Content => ({ type: 'application/json', schema });
export const text = (type: string): Content => ({ type, schema: Type.String() });
export const bytes = (type: string): Content => ({ type, schema: Type.String({ format: 'binary' }) });
