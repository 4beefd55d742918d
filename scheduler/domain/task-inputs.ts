// Which inputs of tasks are kept after their end. Pure.

/** Most bytes of an input within its queue entry; a larger one is an object. */
export const INLINE_INPUT_BYTES = 64 * 1024;

/**
 * Whether a task's input outlives the task. `off`: its deployment keeps none · `too_large`: above the bound of one
 * input · `streamed`: the bytes passed by · `too_many`: too many calls of the workspace failed in that minute.
 */
export const INPUT_STATES = ['kept', 'off', 'too_large', 'streamed', 'too_many'] as const;
export type InputState = (typeof INPUT_STATES)[number];

/** Final statuses of a task that failed for good: an asynchronous one is dead while its input is kept. */
export const DEAD_STATUSES = ['ERROR', 'TIMEOUT', 'EXPIRED'] as const;
/** Days for which a task is dead where its stub does not say. */
export const DEAD_LETTER_DAYS = 7;
export const MOST_DEAD_LETTER_DAYS = 90;

/** Bounds of kept inputs. */
export interface InputBounds {
  /** Days for which one is kept. */
  readonly days: number;
  /** Most bytes of one. */
  readonly bytes: number;
  /** Most bytes of a workspace: the oldest go first. */
  readonly workspaceBytes: number;
}

/** Why a new call's input is not to be kept; undefined: it is. A UTF-16 unit is at most three bytes. */
export function whyNotKept(
  { keepInputs, input }: { readonly keepInputs: boolean; readonly input: string },
  mostBytes: number,
): 'off' | 'too_large' | undefined {
  if (!keepInputs) return 'off';
  return input.length * 3 > mostBytes && Buffer.byteLength(input) > mostBytes ? 'too_large' : undefined;
}

/** Facts about a task without its input, for people. */
export interface AboutInput {
  readonly inputState?: InputState | undefined;
  readonly sync: boolean;
  readonly isOver: boolean;
  readonly status: string;
  readonly isOfModel: boolean;
}

/** Why there is no input of a task, as a sentence without its subject. */
export function whyNoInput({ inputState, sync, isOver, status, isOfModel }: AboutInput, bounds: InputBounds): string {
  if (isOfModel) return 'calls of models keep none';
  switch (inputState ?? (sync ? undefined : 'kept')) {
    case 'off':
      return 'its deployment keeps no inputs (keep_inputs)';
    case 'too_large':
      return `it is larger than ${bounds.bytes} bytes (LONGSHORE_INPUT_BYTES)`;
    case 'streamed':
      return 'the bytes of such a call pass by, and are not kept';
    case 'too_many':
      return 'too many calls of the workspace failed in that minute';
    case 'kept':
      return `it was removed: inputs are kept for ${bounds.days} days (LONGSHORE_INPUT_DAYS), the oldest go when a workspace has more than ${bounds.workspaceBytes} bytes of them (LONGSHORE_WORKSPACE_INPUT_BYTES), and all go with their deployment`;
    case undefined:
      if (!isOver) return 'a synchronous call that fails keeps its input, and this one has not ended';
      if (status === 'COMPLETE' || status === 'CANCELLED')
        return 'synchronous calls keep their input only when they fail';
      return 'it was lost with the process that had it';
  }
}
