// Every operation of the gateway in every way that it may be called, on Postgres and Redis servers.
import { walkGateway } from './gateway-walk.ts';

walkGateway('servers');
