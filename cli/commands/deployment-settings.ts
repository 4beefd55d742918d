// Settings of a deployment as rows for people: of a definition that `deploy --dry-run` would send, and of a record that
// `deployment show` reads. Values of variables are not shown, because they may be secret.
import { isRecord } from '#shared/json.ts';
import { coresOf, counted, memoryOf } from '../format.ts';
import { listField, numberField, objectField, textField, textsField } from '../json.ts';
import type { JsonObject } from '../json.ts';

export interface DeploymentSettings {
  readonly cpuMillicores: number;
  readonly memoryMib: number;
  readonly gpuCount: number;
  /** Models, any of which will do. */
  readonly gpus: readonly string[];
  readonly pool: string;
  readonly minContainers: number;
  readonly maxContainers: number;
  readonly tasksPerContainer: number;
  readonly windowSeconds: number;
  readonly scaleInPerMinute: number;
  /** Containers by schedule, each as text. */
  readonly warm: readonly string[];
  /** Negative: for ever. */
  readonly keepWarmSeconds: number;
  /** high, normal or low. */
  readonly priority: string;
  /** Containers may end for those of other workspaces. */
  readonly interruptible: boolean | 'after_task';
  readonly workers: number;
  readonly concurrentRequests: number;
  /** 0: no limit. */
  readonly timeoutSeconds: number;
  readonly retries: number;
  readonly authorized: boolean;
  /** Inputs of calls are kept, to be shown and run again. */
  readonly keepsInputs: boolean;
  /** Times of a schedule; empty: there is none. */
  readonly when: string;
  readonly ports: readonly string[];
  /** Names of variables of the environment. */
  readonly variables: readonly string[];
  readonly secrets: readonly string[];
}

/** The configuration of the stub in a record of a deployment; empty: the record has none. */
export function configOf(deployment: JsonObject): JsonObject {
  const config: unknown = JSON.parse(textField(objectField(deployment, 'stub'), 'config') || '{}');
  return isRecord(config) ? config : {};
}

/** The settings of a body of GetOrCreateStub. */
export function settingsOfRequest(config: JsonObject): DeploymentSettings {
  const scaling = objectField(config, 'autoscaler');
  return {
    cpuMillicores: numberField(config, 'cpuMillicores'),
    memoryMib: numberField(config, 'memoryMib'),
    gpuCount: numberField(config, 'gpuCount'),
    gpus: textsField(config, 'gpu'),
    pool: poolOf(config),
    minContainers: numberField(scaling, 'minContainers'),
    maxContainers: numberField(scaling, 'maxContainers'),
    tasksPerContainer: numberField(scaling, 'tasksPerContainer'),
    windowSeconds: numberField(scaling, 'windowSeconds'),
    scaleInPerMinute: numberField(scaling, 'scaleInPerMinute'),
    warm: warmOf(scaling),
    keepWarmSeconds: numberField(config, 'keepWarmSeconds'),
    priority: textField(config, 'priority') || 'normal',
    interruptible: interruptibleOf(config),
    workers: numberField(config, 'workers'),
    concurrentRequests: numberField(config, 'concurrentRequests'),
    timeoutSeconds: numberField(config, 'timeoutSeconds'),
    retries: numberField(config, 'retries'),
    authorized: config['authorized'] !== false,
    keepsInputs: config['keepInputs'] !== false,
    when: textField(objectField(config, 'schedule'), 'when'),
    ports: portsOf(objectField(config, 'pod')),
    variables: variablesOf(config),
    secrets: [],
  };
}

/** The settings of a stub's configuration in a record of the REST API. */
export function settingsOfRecord(config: JsonObject): DeploymentSettings {
  const runtime = objectField(config, 'runtime');
  const scaling = objectField(config, 'autoscaler');
  const policy = objectField(config, 'task_policy');
  return {
    cpuMillicores: numberField(runtime, 'cpu'),
    memoryMib: numberField(runtime, 'memory'),
    gpuCount: numberField(runtime, 'gpu_count'),
    gpus: textsField(runtime, 'gpus'),
    pool: textField(config, 'pool'),
    minContainers: numberField(scaling, 'min_containers'),
    maxContainers: numberField(scaling, 'max_containers'),
    tasksPerContainer: numberField(scaling, 'tasks_per_container'),
    windowSeconds: numberField(scaling, 'window_seconds'),
    scaleInPerMinute: numberField(scaling, 'scale_in_per_minute'),
    warm: warmOf(scaling),
    keepWarmSeconds: numberField(config, 'keep_warm_seconds'),
    priority: textField(objectField(config, 'extra'), 'priority') || 'normal',
    interruptible: interruptibleOf(objectField(config, 'extra')),
    workers: numberField(config, 'workers'),
    concurrentRequests: numberField(config, 'concurrent_requests'),
    timeoutSeconds: numberField(policy, 'timeout'),
    retries: numberField(policy, 'max_retries'),
    authorized: config['authorized'] !== false,
    keepsInputs: objectField(config, 'extra')['keepInputs'] !== false,
    when: textField(objectField(config, 'extra'), 'when'),
    ports: portsOf(config),
    variables: variablesOf(config),
    secrets: listField(config, 'secrets').map((one) => textField(one, 'name')),
  };
}

/** @param retriedAfter - what is tried again; empty: not known */
export function settingRows(settings: DeploymentSettings, retriedAfter = ''): (readonly [string, string])[] {
  const { gpuCount, minContainers, maxContainers, tasksPerContainer, workers, concurrentRequests } = settings;
  const when = limitText(settings.timeoutSeconds);
  return [
    ['cpu', coresText(settings.cpuMillicores)],
    ['memory', memoryOf(settings.memoryMib)],
    ['gpu', gpuCount === 0 ? 'none' : `${gpuCount} ${settings.gpus.join(' or ')}`],
    ...row('pool', settings.pool),
    [
      'scaling',
      `${minContainers} to ${counted(maxContainers, 'container')}, one for ${counted(tasksPerContainer, 'task')}, ${keptText(settings.keepWarmSeconds)}`,
    ],
    ...row('scale in', scaleInText(settings)),
    ...row('warm', settings.warm.join('; ')),
    [
      'serves',
      `${counted(workers, 'worker')}, ${counted(Math.max(1, concurrentRequests), 'call')} each; ${when}; ${retriesText(settings.retries, retriedAfter)}`,
    ],
    ...row('priority', settings.priority === 'normal' ? '' : settings.priority),
    ...row('interruptible', INTERRUPTIBLE[String(settings.interruptible)] ?? ''),
    ['access', settings.authorized ? 'with a token' : 'anybody, without a token'],
    ...row('inputs', settings.keepsInputs ? '' : 'not kept (keep_inputs)'),
    ...row('schedule', settings.when),
    ...row('ports', settings.ports.join(', ')),
    ...row('variables', settings.variables.join(', ')),
    ...row('secrets', settings.secrets.join(', ')),
  ];
}

const row = (name: string, text: string): readonly (readonly [string, string])[] => (text === '' ? [] : [[name, text]]);

/** `when nothing asked for it for 30 s; at most 2 containers in a minute`. */
const scaleInText = ({ windowSeconds, scaleInPerMinute }: DeploymentSettings): string =>
  [
    windowSeconds > 0 ? `when nothing asked for it for ${windowSeconds} s` : '',
    scaleInPerMinute > 0 ? `at most ${counted(scaleInPerMinute, 'container')} in a minute` : '',
  ]
    .filter((text) => text !== '')
    .join('; ');

/** `3 containers from 0 8 * * 1-5 until 18:00 (Europe/Berlin)`. */
const warmOf = (scaling: JsonObject): readonly string[] =>
  listField(scaling, 'warm').map((one) => {
    const zone = textField(one, 'timezone') || 'UTC';
    return `${counted(numberField(one, 'min'), 'container')} from ${textField(one, 'when')} until ${textField(one, 'until')} (${zone})`;
  });

const poolOf = (config: JsonObject): string => textField(objectField(objectField(config, 'extra'), 'pool'), 'name');

const portsOf = ({ ports }: JsonObject): readonly string[] => (Array.isArray(ports) ? ports.map(String) : []);

const variablesOf = (config: JsonObject): readonly string[] =>
  textsField(config, 'env').map((line) => line.slice(0, Math.max(0, line.indexOf('='))));

/** `1 core`, `2 cores`, `0.5 cores`. */
const coresText = (millicores: number): string => `${coresOf(millicores)} ${millicores === 1000 ? 'core' : 'cores'}`;

const keptText = (seconds: number): string => (seconds < 0 ? 'kept for ever' : `kept ${seconds} s without work`);

const limitText = (seconds: number): string => (seconds === 0 ? 'no time limit' : `${seconds} s for each`);

const retriesText = (retries: number, after: string): string =>
  retries === 0
    ? 'no retries'
    : `${retries === 1 ? '1 retry' : `${retries} retries`}${after === '' ? '' : ` ${after}`}`;

const interruptibleOf = ({ interruptible }: JsonObject): DeploymentSettings['interruptible'] =>
  interruptible === 'after_task' ? interruptible : interruptible === true;

const INTERRUPTIBLE: Readonly<Record<string, string>> = {
  true: 'yes, for containers of other workspaces',
  after_task: 'after its tasks, for containers of other workspaces',
};
