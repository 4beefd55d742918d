// The target of an invoke URL, by name, stub or host, and whether the caller may invoke it. Found in memory where it is
// known: nothing here awaits a value that is already there.
import { isUuid } from '#shared/domain/ids.ts';
import type { WorkspaceId } from '#shared/domain/ids.ts';
import type { Target } from '../../../domain/stub-config.ts';
import type { Targets } from '../../../workspaces/deployments/targets.ts';
import { BoundedMap } from '../../../workspaces/deployments/bounded-map.ts';
import { isSupervised } from '../../../workspaces/deployments/kinds.ts';
import type { Caller } from '../../../workspaces/identity/caller.ts';
import { invokeProblem } from '../../../workspaces/identity/confinement.ts';
import { readHostLabel } from './host-form.ts';
import { isInvoked } from './kinds.ts';
import { decoded } from './routable.ts';
import { INACTIVE, NOT_PUBLIC, NO_DEPLOYMENT, NO_STUB, NO_VERSION, OTHER_WORKSPACE, UNAUTHORIZED } from './refusal.ts';
import { Refusal } from './refusal.ts';

export interface FindParts {
  readonly targets: Pick<Targets, 'byName' | 'byStub' | 'bySubdomain'>;
}

export type Find = (caller: Caller | null, params: Params) => Found | Promise<Found>;
export type Found = Target | Refusal;

/** Caller and target of an invocation, known before the body is read. */
export interface Invoked {
  readonly caller: Caller | null;
  readonly target: Target;
}

/**
 * Whether the caller's token counts for the target. A public target needs no token: one that does not count for it is
 * as none.
 */
export function permitted(caller: Caller | null, found: Found): Invoked | Refusal {
  if (found instanceof Refusal) return found;
  const problem = caller === null ? undefined : invokeProblem(caller, found.appId);
  if (problem === undefined) return { caller, target: found };
  return found.config.authorized ? new Refusal(401, 'error', problem) : { caller: null, target: found };
}

export type Params = Readonly<Record<string, string>>;

export function byName(parts: FindParts, kind: string, versionOf: (params: Params) => number | null | undefined): Find {
  return (caller, params) => {
    if (caller === null) return UNAUTHORIZED;
    const version = versionOf(params);
    if (version === undefined) return NO_VERSION;
    const { name = '' } = params;
    // The database can neither store nor compare such a text.
    if (name.includes('\0')) return NO_DEPLOYMENT;
    const found = parts.targets.byName(caller.workspaceId, kind, name, version);
    return found instanceof Promise ? found.then(deployed) : deployed(found);
  };
}

/** Finds a stub's target. @param kind - null: any that is invoked in this way */
export function byStub(
  parts: FindParts,
  kind: string | null,
  choose: (caller: Caller | null, target: Target) => Found,
): Find {
  return (caller, params) => {
    const unknown = caller === null ? UNAUTHORIZED : NO_STUB;
    const stubId = (params['stubId'] ?? '').toLowerCase();
    if (!isUuid(stubId)) return unknown;
    const pick = (target: Target | undefined): Found =>
      target === undefined || !(kind === null ? isInvoked(target.kind) : target.kind === kind)
        ? unknown
        : choose(caller, target);
    const found = parts.targets.byStub(stubId);
    return found instanceof Promise ? found.then(pick) : pick(found);
  };
}

/**
 * Finds a public deployment by its workspace and name. One that is not public is as none: a name can be guessed.
 * @param versionOf - undefined: no version
 */
export function byPublicName(
  parts: FindParts,
  kind: string,
  versionOf: (params: Params) => number | null | undefined,
): Find {
  return (caller, params) => {
    const unknown = caller === null ? UNAUTHORIZED : NO_DEPLOYMENT;
    const version = versionOf(params);
    if (version === undefined) return NO_VERSION;
    const { name = '' } = params;
    const workspace = (params['workspace'] ?? '').toLowerCase();
    if (!isUuid(workspace) || name === '' || name.includes('\0')) return unknown;
    const pick = (target: Target | undefined): Found =>
      target === undefined || target.config.authorized ? unknown : publicOnly(caller, target);
    const found = parts.targets.byName(workspace as WorkspaceId, kind, name, version);
    return found instanceof Promise ? found.then(pick) : pick(found);
  };
}

/** Workspaces whose public applications were called by name. */
const MAX_WORKSPACES = 10_000;

/**
 * Finds a public application by a path: by its stub (`STUB/…`), or by workspace and name (`WORKSPACE/NAME/…`). Which
 * of the two an id is, is asked once.
 */
export function byPublicPath(parts: FindParts, kind: string): Find {
  const workspaces = new BoundedMap<string, true>(MAX_WORKSPACES);
  const ofStub = byStub(parts, kind, publicOnly);
  const ofName = byPublicName(parts, kind, ({ '*': rest = '' }) => versionInPath({ '*': rest }));
  return (caller, params) => {
    const id = (params['stubId'] ?? '').toLowerCase();
    const [name = '', ...rest] = (params['*'] ?? '').split('/');
    const named = (): Found | Promise<Found> =>
      ofName(caller, { workspace: id, name: decoded(name) ?? name, '*': rest.join('/') });
    if (name === '' || workspaces.get(id) === true) return name === '' ? ofStub(caller, params) : named();
    const other = (found: Found): Found | Promise<Found> => {
      if (found !== UNAUTHORIZED && found !== NO_STUB) return found;
      const known = (target: Found): Found => {
        if (!(target instanceof Refusal)) workspaces.set(id, true);
        return target;
      };
      const target = named();
      return target instanceof Promise ? target.then(known) : known(target);
    };
    const found = ofStub(caller, params);
    return found instanceof Promise ? found.then(other) : other(found);
  };
}

/** Finds the stub of a container that is named by its id. */
export function byContainer(parts: FindParts): Find {
  return (caller, params) => {
    const unknown = caller === null ? UNAUTHORIZED : NO_STUB;
    const stubId = (params['stubId'] ?? '').toLowerCase();
    if (!isUuid(stubId)) return unknown;
    const pick = (target: Target | undefined): Found =>
      target === undefined || !isSupervised(target.kind) ? unknown : ownOrPublic(caller, target);
    const found = parts.targets.byStub(stubId);
    return found instanceof Promise ? found.then(pick) : pick(found);
  };
}

export function byHost(parts: FindParts): Find {
  const ofStub = byStub(parts, null, ownOrPublic);
  const ofContainer = byContainer(parts);
  return (caller, params) => {
    const unknown = caller === null ? UNAUTHORIZED : NO_DEPLOYMENT;
    const label = readHostLabel(params['label'] ?? '');
    if (label === undefined) return unknown;
    // Only pods have ports.
    const judge = (found: Found): Found =>
      found instanceof Refusal || label.port === null || found.kind === 'pod' ? found : unknown;
    if (label.kind === 'stub') {
      const found = ofStub(caller, { stubId: label.stubId });
      return found instanceof Promise ? found.then(judge) : judge(found);
    }
    if (label.kind === 'container') return ofContainer(caller, { stubId: label.stubId });
    const pick = (target: Target | undefined): Found =>
      target === undefined || !isInvoked(target.kind) ? unknown : judge(ownOrPublic(caller, target));
    const found = parts.targets.bySubdomain(label.subdomain, label.version);
    return found instanceof Promise ? found.then(pick) : pick(found);
  };
}

export const latest = (): null => null;

/** Whether a URL of any form names its version. */
export const namesVersion = (params: Params): boolean => {
  const host = readHostLabel(params['label'] ?? '');
  return params['version'] !== undefined || (host?.kind === 'deployment' && host.version !== null);
};

/** Reads `v3`; undefined: not a version. */
export function versionParam(params: Params): number | undefined {
  const [, digits] = /^v([0-9]{1,9})$/.exec(params['version'] ?? '') ?? [];
  return digits === undefined ? undefined : Number(digits);
}

/** The version that the first part of a sub-path names; null: the newest, as without one. */
export function versionInPath(params: Params): number | null {
  const [first = ''] = (params['*'] ?? '').split('/', 1);
  return versionParam({ version: first }) ?? null;
}

const deployed = (target: Target | undefined): Found =>
  target === undefined ? NO_DEPLOYMENT : target.active ? target : INACTIVE;

export function ownOrPublic(caller: Caller | null, target: Target): Found {
  if (target.config.authorized) {
    if (caller === null) return UNAUTHORIZED;
    if (caller.workspaceId !== target.workspaceId) return OTHER_WORKSPACE;
  }
  return target.active ? target : INACTIVE;
}

export function publicOnly(_caller: Caller | null, target: Target): Found {
  if (target.config.authorized) return NOT_PUBLIC;
  return target.active ? target : INACTIVE;
}
