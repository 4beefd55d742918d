// The screens of the fleet, loaded when the first of them is opened.
import type { FunctionComponent } from 'preact';
import { Alerts } from './alerts.tsx';
import { Audit } from './audit.tsx';
import { Gpus } from './gpus.tsx';
import { Machines } from './machines.tsx';
import { Pools } from './pools.tsx';
import { Waiting } from './waiting.tsx';
import { Workspaces } from './workspaces.tsx';

const SCREENS: Readonly<Record<string, FunctionComponent<{ readonly id: string }>>> = {
  gpus: Gpus,
  machines: Machines,
  waiting: Waiting,
  pools: Pools,
  workspaces: Workspaces,
  alerts: Alerts,
  audit: Audit,
};

export function Fleet({ screen, id }: { readonly screen: string; readonly id: string }) {
  const Screen = SCREENS[screen];
  return Screen === undefined ? <h1>There is no such screen</h1> : <Screen id={id} />;
}
