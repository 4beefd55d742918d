// Maps, queues and signals, which programs and handlers of a workspace share.
import type { Service } from './service.ts';

export const MAP: Service = {
  pack: 'map',
  name: 'MapService',
  messages: {
    MapCountRequest: 'name 1',
    MapCountResponse: 'ok 1 bool; count 2 uint32',
    MapDeleteRequest: 'name 1; key 2',
    MapDeleteResponse: 'ok 1 bool',
    MapGetRequest: 'name 1; key 2',
    MapGetResponse: 'ok 1 bool; value 2 bytes',
    MapKeysRequest: 'name 1',
    MapKeysResponse: 'ok 1 bool; keys 2 string[]',
    MapSetRequest: 'name 1; key 2; value 3 bytes; ttl 4 int64',
    MapSetResponse: 'ok 1 bool; err_msg 2',
  },
  calls: { MapSet: {}, MapGet: {}, MapDelete: {}, MapCount: {}, MapKeys: {} },
};

const BY_NAME = { asks: 'SimpleQueueRequest' } as const;

export const SIMPLE_QUEUE: Service = {
  pack: 'simplequeue',
  name: 'SimpleQueueService',
  messages: {
    SimpleQueueEmptyResponse: 'ok 1 bool; empty 2 bool',
    SimpleQueuePeekResponse: 'ok 1 bool; value 2 bytes',
    SimpleQueuePopRequest: 'name 1; value 2 bytes',
    SimpleQueuePopResponse: 'ok 1 bool; value 2 bytes',
    SimpleQueuePutRequest: 'name 1; value 2 bytes',
    SimpleQueuePutResponse: 'ok 1 bool',
    SimpleQueueRequest: 'name 1',
    SimpleQueueSizeResponse: 'ok 1 bool; size 2 uint64',
  },
  calls: {
    SimpleQueuePut: {},
    SimpleQueuePop: {},
    SimpleQueuePeek: BY_NAME,
    SimpleQueueEmpty: BY_NAME,
    SimpleQueueSize: BY_NAME,
  },
};

export const SIGNAL: Service = {
  pack: 'signal',
  name: 'SignalService',
  messages: {
    SignalClearRequest: 'name 1',
    SignalClearResponse: 'ok 1 bool',
    SignalMonitorRequest: 'name 1',
    SignalMonitorResponse: 'ok 1 bool; set 2 bool',
    SignalSetRequest: 'name 1; ttl 2 int64',
    SignalSetResponse: 'ok 1 bool',
  },
  calls: { SignalSet: {}, SignalClear: {}, SignalMonitor: {} },
};
