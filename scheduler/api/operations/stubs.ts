import {
  CheckStubRequest,
  CheckStubResponse,
  DeployStubRequest,
  DeployStubResponse,
  GetOrCreateStubRequest,
  GetOrCreateStubResponse,
  GetUrlRequest,
  GetUrlResponse,
} from '#shared/api/stubs.ts';
import { kindOf } from '#shared/domain/status.ts';
import type { Log } from '#shared/log.ts';
import { actorOf } from '../../workspaces/events/audit.ts';
import { isOutside } from '../../workspaces/identity/confinement.ts';
import { urlTargetOf } from '../../workspaces/deployments/deployments.ts';
import type { DeployOutcome, Deployments } from '../../workspaces/deployments/deployments.ts';
import type { Stubs } from '../../workspaces/deployments/stubs.ts';
import { invokeUrl, nameUrl, pathUrl, urlFormOf } from '../../workspaces/deployments/urls.ts';
import type { UrlSettings } from '../../workspaces/deployments/urls.ts';
import { rolloutOf } from './rollout.ts';
import { operation } from './operation.ts';
import type { Operation } from './operation.ts';

export function getOrCreateStub(stubs: Stubs): Operation {
  return operation({
    name: 'GetOrCreateStub',
    http: 'POST /stubs',
    scope: 'any',
    containers: true,
    request: GetOrCreateStubRequest,
    response: GetOrCreateStubResponse,
    handle: async (caller, request) => {
      const outcome = await stubs.getOrCreate(caller, request);
      if (outcome.kind === 'refused') {
        const none = { capacityStatus: '', unsupportedGpus: [], matchedPrivatePool: '' };
        return { ok: false, stubId: '', errMsg: outcome.errMsg, warnMsg: outcome.warnMsg ?? '', ...none };
      }
      const { stub, warnMsg, unsupportedGpus, supply } = outcome;
      return {
        ok: true,
        stubId: stub.id,
        errMsg: '',
        warnMsg,
        capacityStatus: supply?.status ?? '',
        unsupportedGpus: [...unsupportedGpus],
        matchedPrivatePool: supply?.privatePool ?? '',
      };
    },
  });
}

/** Says what is wrong with a stub that is not made. An operation of ours, for `longshore deploy --dry-run`. */
export function checkStub(stubs: Pick<Stubs, 'check'>): Operation {
  return operation({
    name: 'CheckStub',
    http: 'POST /stubs/check',
    scope: 'any',
    request: CheckStubRequest,
    response: CheckStubResponse,
    handle: async (caller, request) => {
      const { problems, warnings, config } = await stubs.check(caller, request);
      return { ok: true, errMsg: '', problems: [...problems], warnings: [...warnings], config };
    },
  });
}

/** Nothing had to wait: calls of the name reach the new version. */
const AT_ONCE = { state: 'done', why: '', since: null, until: null };

type Refused = Extract<DeployOutcome, { kind: 'refused' }>;

function refusalText(refused: Refused): string {
  switch (refused.why) {
    case 'stub_not_found':
      return 'stub not found';
    case 'empty_name':
      return 'name must hold a letter or digit, and at most 255 characters';
    case 'no_code':
      return 'the code of the stub was not uploaded: put its object again';
    case 'name':
    case 'image':
    case 'limit':
    case 'schedule':
    case 'kind':
    case 'volume':
      return refused.text;
  }
}

/** Deploys a stub. The refusal is in `errMsg`, known risks of a deployment in `warnMsg`: both are fields of ours. */
export function deployStub(deployments: Deployments, urls: UrlSettings, log: Log): Operation {
  return operation({
    name: 'DeployStub',
    http: 'POST /stubs/deploy',
    scope: 'full',
    request: DeployStubRequest,
    response: DeployStubResponse,
    handle: async (caller, request, origin) => {
      const { stubId, name } = request;
      const how = { now: request.rollout === 'now' };
      const outcome = await deployments.deploy(caller, stubId, name, actorOf(caller, origin.from), how);
      if (outcome.kind === 'refused') {
        log.info({ stubId, why: outcome.why }, 'deploy refused');
        const errMsg = refusalText(outcome);
        return { ok: false, errMsg, warnMsg: '', deploymentId: '', version: 0, invokeUrl: '', rollout: null };
      }
      const { deployment, stub, warning: warnMsg } = outcome;
      const url = invokeUrl(origin.baseUrl, urlTargetOf(stub, deployment), urls);
      const { id: deploymentId, version } = deployment;
      const rollout = rolloutOf(deployment, stub.config) ?? AT_ONCE;
      return { ok: true, errMsg: '', warnMsg, deploymentId, version, invokeUrl: url, rollout };
    },
  });
}

export function getUrl(stubs: Stubs, deployments: Deployments, urls: UrlSettings): Operation {
  return operation({
    name: 'GetURL',
    http: 'GET /stubs/{stubId}/url',
    scope: 'any',
    grants: { scopes: ['invoke', 'read'], confinesToApp: true },
    request: GetUrlRequest,
    response: GetUrlResponse,
    handle: async (caller, request, origin) => {
      if (request.isShell && (caller.type === 'workspace_restricted' || caller.confined !== undefined))
        return refused('Unauthorized access');
      const stub = await stubs.findAccessible(caller, request.stubId);
      if (stub === undefined || isOutside(caller, stub.appId)) return refused('Invalid stub ID');
      const urlType = urlFormOf(request.urlType);
      if (request.isShell) {
        const shell = { stubId: stub.id, stubType: 'shell', public: false, deployment: null };
        return { ok: true, errMsg: '', url: pathUrl(origin.baseUrl, shell) };
      }
      const isServe = stub.type === `${kindOf(stub.type)}/serve`;
      if (isServe || request.deploymentId === '') {
        return {
          ok: true,
          errMsg: '',
          url: invokeUrl(origin.baseUrl, urlTargetOf(stub, null), urls, urlType || 'path'),
        };
      }
      const deployment = await deployments.find({ workspaceId: stub.workspaceId }, request.deploymentId);
      if (deployment?.stubId !== stub.id) return refused('Unable to get deployment');
      const target = urlTargetOf(stub, deployment);
      if (urlType !== 'name' && urlType !== 'name-host')
        return { ok: true, errMsg: '', url: invokeUrl(origin.baseUrl, target, urls, urlType) };
      const how = { workspaceId: stub.workspaceId, withHost: urlType === 'name-host' };
      return { ok: true, errMsg: '', url: nameUrl(origin.baseUrl, target, how, urls) };
    },
  });
}

const refused = (errMsg: string) => ({ ok: false, errMsg, url: '' });
