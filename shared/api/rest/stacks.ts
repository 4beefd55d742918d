import { Type } from 'typebox';
import type { Static } from 'typebox';
import { Exact } from '../fields.ts';
import { Id, Time, listOf } from './lists.ts';
import { QueryInteger, QueryText } from './query.ts';

export const MAX_STACK_NAME = 100;
export const MOST_STACK_APPS = 100;
export const MAX_LAYOUT_BYTES = 64 * 1024;
export const MAX_STACK_PAGE = 100;

const Layout = () =>
  Exact({
    type: 'object',
    description: `of programs that draw it, as they sent it; at most ${MAX_LAYOUT_BYTES} bytes of JSON`,
  });

/** A named group of apps. Apps keep running, and stay, whatever becomes of it. */
export const StackRecord = Type.Object({
  id: Id(),
  external_id: Id(),
  name: Type.String(),
  apps: Type.Array(Type.String(), { description: 'names of apps' }),
  members: Type.Array(
    Type.Object({
      app_id: Id(),
      name: Type.String(),
      kind: Type.String({ description: 'of what was made last in it, such as endpoint; empty: nothing was' }),
      active: Type.Boolean({ description: 'whether its newest deployment takes calls' }),
      url: Type.String({ description: 'where that is called; empty: nothing was made in it' }),
    }),
    { description: 'the apps as they are now, in the same order' },
  ),
  layout: Layout(),
  created_at: Time(),
  updated_at: Time(),
});
export type StackRecord = Static<typeof StackRecord>;

export const StackQuery = Type.Object({
  limit: QueryInteger(`of a page: 10 when absent or 0, ${MAX_STACK_PAGE} at most`),
  cursor: QueryText('next of the page before'),
});

export const StackList = listOf(StackRecord);

const StackName = () =>
  Type.String({
    maxLength: MAX_STACK_NAME,
    pattern: '^[^\\u0000-\\u001f\\u007f]+$',
    description: 'unique in the workspace',
  });
const AppNames = (description: string) => Type.Optional(Type.Array(Type.String(), { description }));

export const CreateStack = Type.Object({
  name: StackName(),
  apps: AppNames(`names of apps, at most ${MOST_STACK_APPS}`),
  layout: Type.Optional(Layout()),
});
export type CreateStack = Static<typeof CreateStack>;

/** A replacement of what is named, or additions and removals. */
export const ChangeStack = Type.Object({
  name: Type.Optional(StackName()),
  apps: AppNames('names of all its apps from now on; not together with add and remove'),
  add: AppNames('names of apps to add; those it has are passed over'),
  remove: AppNames('names of apps to take out; those it has not are passed over'),
  layout: Type.Optional(Layout()),
});
export type ChangeStack = Static<typeof ChangeStack>;

export const StackDeleted = Type.Object({});
