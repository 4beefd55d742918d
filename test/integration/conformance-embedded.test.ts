// Every operation of the gateway in every way that it may be called, on the stores that a scheduler brings along.
import { walkGateway } from './gateway-walk.ts';

walkGateway('embedded');
