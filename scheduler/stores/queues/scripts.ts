// Lua scripts of ours, one file each in lua/, as commands of a client.
// They write only our own keys (depth.lua reads four of BullMQ's).
import { readFileSync } from 'node:fs';
import type { Redis } from 'ioredis';

const SCRIPTS = {
  longshoreDepth: { file: 'depth.lua', numberOfKeys: 5 },
  longshoreTakeFlow: { file: 'take-flow.lua', numberOfKeys: 5 },
  longshoreFreeFlow: { file: 'free-flow.lua', numberOfKeys: 4 },
  longshoreGiveTurnBack: { file: 'give-turn-back.lua', numberOfKeys: 1 },
  longshoreTakeTurn: { file: 'take-turn.lua', numberOfKeys: 1 },
  longshoreTakePace: { file: 'take-pace.lua', numberOfKeys: 1 },
  longshoreSpillRecords: { file: 'spill-records.lua', numberOfKeys: 2 },
  longshoreTakeSpilled: { file: 'take-spilled.lua', numberOfKeys: 2 },
  longshoreEndTasks: { file: 'end-tasks.lua' },
  longshoreWriteLeases: { file: 'write-leases.lua' },
  longshoreRenewLeases: { file: 'renew-leases.lua' },
  longshoreDropLease: { file: 'drop-lease.lua', numberOfKeys: 2 },
  longshoreHoldLeader: { file: 'hold-leader.lua', numberOfKeys: 2 },
  longshoreReserveCredit: { file: 'reserve-credit.lua', numberOfKeys: 4 },
  longshoreEndCreditHold: { file: 'end-credit-hold.lua', numberOfKeys: 5 },
  longshoreRenewCreditHolds: { file: 'renew-credit-holds.lua', numberOfKeys: 2 },
  longshorePutCreditAccount: { file: 'put-credit-account.lua', numberOfKeys: 1 },
  longshoreTrimLedger: { file: 'trim-ledger.lua' },
  longshoreTakeInferenceRate: { file: 'take-inference-rate.lua', numberOfKeys: 1 },
  longshorePullLine: { file: 'pull-line.lua', numberOfKeys: 6 },
  longshoreResignLeader: { file: 'resign-leader.lua', numberOfKeys: 1 },
} as const satisfies Record<string, { readonly file: string; readonly numberOfKeys?: number }>;

export type ScriptName = keyof typeof SCRIPTS;

/** Script on one client. */
export interface Script {
  /** Runs the script now; a script with any number of keys gets that number first. @throws the client's error */
  readonly run: (...keysAndArguments: readonly (string | number)[]) => Promise<unknown>;
}

type Command = (...keysAndArguments: readonly (string | number)[]) => unknown;

/**
 * Makes a script a command of this client. The hash is sent;
 * the client loads the script again when the server forgot it.
 */
export function defineScript(client: Redis, name: ScriptName): Script {
  const { file, ...keys } = SCRIPTS[name];
  if (commandOf(client, name) === undefined) {
    const lua = readFileSync(new URL(`./lua/${file}`, import.meta.url), 'utf8');
    client.defineCommand(name, { ...keys, lua });
  }
  const command = commandOf(client, name);
  if (command === undefined) throw new Error(`Redis client has no command ${name}`);
  return {
    run: async (...given) => Reflect.apply(command, client, given),
  };
}

function commandOf(target: object, name: ScriptName): Command | undefined {
  const found: unknown = Reflect.get(target, name);
  return typeof found === 'function' ? (found as Command) : undefined;
}
