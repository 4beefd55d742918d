// Development servers of endpoints and web applications.
import type { Service } from './service.ts';

export const ENDPOINT: Service = {
  pack: 'endpoint',
  name: 'EndpointService',
  messages: {
    StartEndpointServeRequest: 'stub_id 1; timeout 2 int32',
    StartEndpointServeResponse: 'ok 1 bool; container_id 2; error_msg 3',
  },
  calls: {
    StartEndpointServe: { operation: 'StartClientServe' },
  },
};
